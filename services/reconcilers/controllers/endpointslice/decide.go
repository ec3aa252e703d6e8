package endpointslice

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func decide(v View, _ time.Time) reconcile.Decision {
	if !v.published() {
		return reconcile.Nothing("another controller publishes the endpoints of this Service")
	}
	v = v.sorted()
	var all changes
	now := Told{Hints: map[discoveryv1.AddressType]string{}, Skipped: v.skipped()}
	families := v.families()
	for _, family := range families {
		c := v.packed(family)
		if hints := v.hint(&c); hints != "" {
			now.Hints[family] = hints
		}
		c.settle(v.Service)
		all.add(c)
	}
	for _, slice := range v.Slices {
		if !slices.Contains(families, slice.AddressType) {
			all.remove = append(all.remove, slice)
		}
	}
	commands := v.commands(all)
	d := reconcile.Nothing("the EndpointSlices are up to date")
	if len(commands) > 0 {
		d = reconcile.Do("the EndpointSlices are not up to date", commands...)
		d.Figures = v.counted(commands, all)
	}
	d = reconcile.Join(d, v.news(now))
	d.Figures = append(d.Figures, v.totals(all)...)
	return d
}

// sorted returns the view in an order that does not depend on the memory.
func (v View) sorted() View {
	v.Pods, v.Slices = slices.Clone(v.Pods), slices.Clone(v.Slices)
	slices.SortStableFunc(v.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(v.Slices, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

// changes are the creates, updates and deletes of the slices of a service.
type changes struct {
	family                 discoveryv1.AddressType
	create, update, remove []*discoveryv1.EndpointSlice
	// same are the slices of the family that do not change.
	same []*discoveryv1.EndpointSlice
}

func (c *changes) add(more changes) {
	c.create = append(c.create, more.create...)
	c.update = append(c.update, more.update...)
	c.remove = append(c.remove, more.remove...)
	c.same = append(c.same, more.same...)
}

// settle turns pairs of a create and a delete into an update, which is cheaper for every client.
func (c *changes) settle(svc *corev1.Service) {
	var gone []*discoveryv1.EndpointSlice
	for _, old := range c.remove {
		last := len(c.create) - 1
		if last < 0 || !ownedBy(old, svc) {
			gone = append(gone, old)
			continue
		}
		next := c.create[last]
		next.Name, next.UID, next.ResourceVersion = old.Name, old.UID, old.ResourceVersion
		c.create, c.update = c.create[:last], append(c.update, next)
	}
	c.remove = gone
}

// commands returns the changes as commands. A service that is being deleted gets no new
// slices, because the garbage collector would have to delete them again.
func (v View) commands(c changes) []events.Command {
	var commands []events.Command
	since := v.since()
	if v.Service.DeletionTimestamp == nil {
		taken := make(map[string]bool, len(v.Slices))
		for _, slice := range v.Slices {
			taken[slice.Name] = true
		}
		given := names.Derived(v.Service, v.Attempt, len(c.create), func(name string) bool { return taken[name] })
		for i, slice := range c.create {
			mark(slice, since)
			commands = append(commands, reconcile.Create(kinds.EndpointSlices.Kind, v.Service.Namespace, given[i], reconcile.Body(slice), v.tell("create")))
		}
	}
	for _, slice := range c.update {
		mark(slice, since)
		commands = append(commands, reconcile.Update(kinds.EndpointSlices.Kind, slice, v.tell("update")))
	}
	for _, slice := range c.remove {
		commands = append(commands, reconcile.Delete(kinds.EndpointSlices.Kind, slice, v.tell("delete")))
	}
	return commands
}

// tell sends an Event about the service if a command fails.
func (v View) tell(verb string) reconcile.Option {
	of := "EndpointSlice for Service " + v.Service.Namespace + "/" + v.Service.Name
	name := "{name} "
	if verb == "create" {
		name = ""
	}
	return reconcile.WithEvents(nil, v.notice(corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
		v.failing()+"failed to "+verb+" "+name+of+": {error}"))
}

// mark sets the annotation with the time of the change, by which clients measure how long
// it takes until nodes have it.
func mark(slice *discoveryv1.EndpointSlice, since time.Time) {
	if since.IsZero() {
		delete(slice.Annotations, corev1.EndpointsLastChangeTriggerTime)
		return
	}
	if slice.Annotations == nil {
		slice.Annotations = map[string]string{}
	}
	slice.Annotations[corev1.EndpointsLastChangeTriggerTime] = since.UTC().Format(time.RFC3339Nano)
}

// since returns the time of the first change that the service's slices do not show yet:
// the service was created, or a pod became ready or unready. Upstream remembers the pods'
// times; this controller recognises new changes by the readiness in the slices. Other
// changes of an endpoint, such as its termination, have no time.
func (v View) since() time.Time {
	serving := map[types.UID]bool{}
	first := v.Service.CreationTimestamp.Time
	for _, slice := range v.Slices {
		if !ownedBy(slice, v.Service) {
			continue
		}
		first = time.Time{}
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil {
				serving[e.TargetRef.UID] = ptr.Deref(cmp.Or(e.Conditions.Serving, e.Conditions.Ready), true)
			}
		}
	}
	if !first.IsZero() {
		return first
	}
	for _, p := range v.Pods {
		was, shown := serving[p.UID]
		if shown && was == pod.Ready(p) || !shown && !v.shows(p) {
			continue
		}
		if at := readiness(p); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// shows reports whether a pod must be in a slice.
func (v View) shows(p *corev1.Pod) bool {
	return slices.ContainsFunc(v.families(), func(family discoveryv1.AddressType) bool {
		_, ok := v.endpoint(p, family)
		return ok
	})
}

// readiness returns when the pod's readiness last changed.
func readiness(p *corev1.Pod) time.Time {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
