package selinuxwarning

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Bounds for volumes that very many pods use. Upstream's Event recorder also limits a pod to a
// burst of 25 Events.
const (
	mostOfPod  = 25          // other pods of which a new pod is told
	mostAtOnce = 200         // Events of a turn after which no further pod is compared
	mostShown  = 10_000      // conflicts of a volume in the metric
	pause      = time.Second // until the next pods are compared
	longest    = 512         // bytes of a label in an Event
)

// within reports the volumes that the pod's containers mount with two labels.
//
// Upstream: pkg/controller/volume/selinuxwarning, syncPod, which tells it again and again.
func (v View) within() reconcile.Decision {
	d := reconcile.Nothing("no volume is mounted with two SELinux labels")
	var told []string
	for _, volume := range v.Found {
		if pod.Terminal(v.Pod) || len(labelsIn(v.Pod, volume)) < 2 || slices.Contains(told, volume) {
			continue
		}
		if told = append(told, volume); slices.Contains(v.Told, volume) {
			continue
		}
		d.Commands = append(d.Commands, reconcile.Record(events.Notice{
			About: reconcile.About(kinds.Pods.Kind, v.Pod), Type: corev1.EventTypeWarning, Reason: multiple,
			Message: "Volume " + strconv.Quote(volume) + " is mounted twice with different SELinux labels inside this pod",
		}))
	}
	switch {
	case len(d.Commands) > 0:
		d.Because = "containers of the pod mount a volume with different SELinux labels"
		d.Commands[0].Note = reconcile.Body(note{Volumes: told})
	case len(told) > 0:
		d.Because = "the pod was told that it mounts a volume with different SELinux labels"
	}
	return d
}

// compare reports conflicts between pods that use the volume, and counts them.
func (v View) compare(now time.Time) reconcile.Decision {
	wants := v.wants()
	d := reconcile.Nothing("no pods that use the volume conflict")
	d.Figures = figures(wants)
	n := v.news(wants)
	switch {
	case len(n.commands) > 0:
		d.Because, d.Commands = "pods that use the volume conflict", n.commands
		d.Commands[0].Note = reconcile.Body(note{Known: n.known})
	case n.forgets(v, wants):
		d.Because = "a pod that was told of a conflict wants something else now"
		d.Commands = []events.Command{{Verb: events.VerbRecord, Note: reconcile.Body(note{Known: n.known})}}
	case len(d.Figures) > 0:
		d.Because = "pods that use the volume conflict, and were told so"
	}
	if n.more {
		d.WakeAt = now.Add(pause)
	}
	return d
}

// wants are the wants of the pods, sorted by name.
func (v View) wants() (all []want) {
	for _, u := range v.Uses {
		if w, ok := v.wantOf(u); ok {
			all = append(all, w)
		}
	}
	slices.SortStableFunc(all, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	return all
}

// news are the reports that pods have not had yet.
type news struct {
	commands []events.Command
	known    map[types.UID]string
	more     bool
}

// news compares the pods without a report, one by one, with those that had one and with each
// other, so that each pair is compared once. Pods without a conflict are not in known: a pod
// that later conflicts with one reports to both.
func (v View) news(wants []want) (n news) {
	n.known = map[types.UID]string{}
	var settled, changed []want
	for _, w := range wants {
		if before, known := v.Known[w.pod.UID]; known && before == w.digest() {
			settled, n.known[w.pod.UID] = append(settled, w), before
		} else {
			changed = append(changed, w)
		}
	}
	for _, w := range changed {
		before, known := v.Known[w.pod.UID]
		switch {
		case len(n.commands) < mostAtOnce:
			n.add(w, settled)
			settled = append(settled, w)
		case known:
			n.known[w.pod.UID], n.more = before, true
		default:
			n.more = true
		}
	}
	return n
}

// add reports the conflicts between a pod and others.
func (n *news) add(w want, settled []want) {
	told := 0
	for _, other := range settled {
		found := conflicts(w, other)
		if len(found) == 0 {
			continue
		}
		n.known[w.pod.UID], n.known[other.pod.UID] = w.digest(), other.digest()
		if told++; told > mostOfPod {
			continue
		}
		for _, c := range found {
			n.commands = append(n.commands, c.tell(), c.turned().tell())
		}
	}
}

// forgets reports whether the record about a pod that uses the volume has changed.
func (n *news) forgets(v View, wants []want) bool {
	return slices.ContainsFunc(wants, func(w want) bool { return n.known[w.pod.UID] != v.Known[w.pod.UID] })
}

// conflict is a report to a pod about another one.
type conflict struct {
	property, reason  string
	pod, other        *corev1.Pod
	value, otherValue string
}

// conflicts are the conflicts of two pods, as reported to the first one.
//
// Upstream: pkg/controller/volume/selinuxwarning/cache, AddVolume.
func conflicts(a, b want) (all []conflict) {
	if a.policy != b.policy {
		all = append(all, conflict{"SELinuxChangePolicy", policies, a.pod, b.pod, a.policy, b.policy})
	}
	if labelsConflict(a.label, b.label) {
		all = append(all, conflict{"SELinuxLabel", labels, a.pod, b.pod, shown(a.label), shown(b.label)})
	}
	return all
}

// shown is a label in an Event. No valid SELinux label is longer than a memory page.
func shown(label string) string {
	if len(label) <= longest {
		return label
	}
	return strings.ToValidUTF8(label[:longest], "") + "..."
}

// turned is the conflict as reported to the other pod.
func (c conflict) turned() conflict {
	return conflict{c.property, c.reason, c.other, c.pod, c.otherValue, c.value}
}

// tell is the Event about a conflict. It names no pods of other namespaces.
//
// Upstream: pkg/controller/volume/selinuxwarning/cache, EventMessage, which lacks a space, too.
func (c conflict) tell() events.Command {
	message := c.property + `"` + c.value + `" conflicts with another pod that uses the same volume as this pod with a different ` + c.property
	if c.pod.Namespace == c.other.Namespace {
		message = c.property + ` "` + c.value + `" conflicts with pod ` + c.other.Name + ` that uses the same volume as this pod with ` + c.property + ` "` + c.otherValue + `"`
	}
	return reconcile.Record(events.Notice{
		About: reconcile.About(kinds.Pods.Kind, c.pod), Type: corev1.EventTypeNormal, Reason: c.reason,
		Message: message + ". If both pods land on the same node, only one of them may access the volume.",
	})
}

// figures are the conflicts of all pods, each pair in both directions.
func figures(wants []want) (all []reconcile.Figure) {
	for i, a := range wants {
		for _, b := range wants[i+1:] {
			for _, c := range conflicts(a, b) {
				if len(all) >= mostShown {
					return all
				}
				all = append(all, c.figure(), c.turned().figure())
			}
		}
	}
	return all
}

func (c conflict) figure() reconcile.Figure {
	return reconcile.Figure{Metric: conflicting, Value: 1, Labels: []string{
		c.property, c.pod.Namespace, c.pod.Name, c.value, c.other.Namespace, c.other.Name, c.otherValue,
	}}
}
