package endpointslicemirroring

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// election is the annotation of Endpoints that old programs use as a leader election lock.
const election = "control-plane.alpha.kubernetes.io/leader"

func decide(v View, _ time.Time) reconcile.Decision {
	v.Slices = slices.Clone(v.Slices)
	slices.SortStableFunc(v.Slices, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	if why, never := v.unwanted(); never {
		return v.none(why)
	}
	wanted, left := v.mirrors()
	c := v.compare(wanted)
	if c.settle(); v.Endpoints.DeletionTimestamp != nil {
		c.create = nil // the garbage collector would have to delete them again
	}
	commands := v.commands(c)
	d := reconcile.Nothing("the mirrored EndpointSlices are up to date")
	if len(commands) > 0 {
		d = reconcile.Do("the mirrored EndpointSlices are not up to date", append(commands, v.told(left)...)...)
		d.Figures = append(counted(commands), c.figures(left)...)
	}
	d.Figures = append(d.Figures, totals(wanted)...)
	return d
}

// unwanted returns why these Endpoints must not be mirrored, if so.
func (v View) unwanted() (why string, never bool) {
	switch {
	case v.Endpoints == nil:
		return "there is nothing to be mirrored", true
	case v.Endpoints.Labels[discoveryv1.LabelSkipMirror] == "true":
		return "the endpoints ask not to be mirrored", true
	case v.Service == nil:
		return "no service has these endpoints", true
	case v.Service.Spec.Selector != nil:
		return "the service has a selector: its endpoints are known better than by a mirror", true
	}
	_, never = v.Endpoints.Annotations[election]
	return "the Endpoints are used for leader election", never
}

// none deletes all mirrors.
func (v View) none(why string) reconcile.Decision {
	if len(v.Slices) == 0 {
		return reconcile.Nothing(why)
	}
	d := reconcile.Decision{Because: why}
	for _, slice := range v.Slices {
		d.Commands = append(d.Commands, reconcile.Delete(kinds.EndpointSlices.Kind, slice))
	}
	d.Figures = counted(d.Commands)
	return d
}

// changes are the creates, updates and deletes of mirrors.
type changes struct {
	create, update, remove []*discoveryv1.EndpointSlice
	// added, updated and removed count addresses.
	added, updated, removed int
}

// settle turns pairs of a create and a delete of one family into an update, which is
// cheaper for every client.
func (c *changes) settle() {
	var gone []*discoveryv1.EndpointSlice
	for _, old := range c.remove {
		at := slices.IndexFunc(c.create, func(next *discoveryv1.EndpointSlice) bool { return next.AddressType == old.AddressType })
		if at < 0 {
			gone = append(gone, old)
			continue
		}
		next := c.create[at]
		take(next, old)
		c.create, c.update = slices.Delete(c.create, at, at+1), append(c.update, next)
	}
	c.remove = gone
}

// take makes next an update of old.
func take(next, old *discoveryv1.EndpointSlice) {
	next.Name, next.GenerateName, next.UID, next.ResourceVersion = old.Name, "", old.UID, old.ResourceVersion
	next.Finalizers = old.Finalizers // they belong to other controllers
}

// commands returns the changes as commands.
func (v View) commands(c changes) []events.Command {
	var commands []events.Command
	given := names.Derived(v.Endpoints, v.Attempt, len(c.create), func(name string) bool {
		return slices.ContainsFunc(v.Slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
	})
	for i, slice := range c.create {
		commands = append(commands, reconcile.Create(kinds.EndpointSlices.Kind, slice.Namespace, given[i], reconcile.Body(slice)))
	}
	for _, slice := range c.update {
		commands = append(commands, reconcile.Update(kinds.EndpointSlices.Kind, slice))
	}
	for _, slice := range c.remove {
		commands = append(commands, reconcile.Delete(kinds.EndpointSlices.Kind, slice))
	}
	return commands
}

// told sends Events about the Endpoints if addresses are not mirrored.
//
// Upstream: at every sync; here when something changes, or it would never end.
func (v View) told(left leftOut) []events.Command {
	var commands []events.Command
	warn := func(reason, message string) {
		commands = append(commands, reconcile.Record(events.Notice{
			About: reconcile.About(kinds.Endpoints.Kind, v.Endpoints), Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		}))
	}
	if left.invalid > 0 {
		warn("InvalidIPAddress", fmt.Sprintf("Skipped %d invalid IP addresses when mirroring to EndpointSlices", left.invalid))
	}
	if left.all > left.invalid {
		warn("TooManyAddressesToMirror", fmt.Sprintf("A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", v.Max, left.all))
	}
	return commands
}
