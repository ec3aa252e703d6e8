package sim

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// look is the view that a decision rests on, and its commands. The rules judge a controller by
// its view: it cannot know later versions.
type look struct {
	key      events.Key
	own      metav1.Object // the key's object; nil: the view had none
	objects  map[kinds.Name][]metav1.Object
	commands []events.Command // of the lane Act
	reports  []events.Command // of the lane Tell
	now      time.Time
}

// looks keeps the view of the last decision about each key, in one process.
type looks struct {
	own   kinds.Name
	kinds []kinds.Name // that the rules ask about
	last  map[events.Key]*look
}

func newLooks(d reconcile.Description) *looks {
	l := &looks{kinds: judgements[d.Name].kinds, last: map[events.Key]*look{}}
	if d.Owns != nil {
		l.own = d.Owns.Name
	}
	return l
}

// take records the view of a decision. The objects are shared, and never changed.
func (l *looks) take(s reconcile.Snapshot, k events.Key, now time.Time, d reconcile.Decision) {
	if len(l.kinds) == 0 {
		return
	}
	seen := &look{key: k, now: now, objects: map[kinds.Name][]metav1.Object{}, commands: d.In(events.LaneWrite).Commands, reports: d.In(events.LaneStatus).Commands}
	if obj, ok := s.Get(l.own, k.Namespace, k.Name); ok {
		seen.own = obj
	}
	for _, name := range l.kinds {
		in := k.Namespace
		if kind, known := s.Kind(name); known && !kind.Namespaced {
			in = ""
		}
		seen.objects[name] = s.List(name, in)
	}
	l.last[k] = seen
}

// of is the view of a turn that is being stored; nil for a controller that no rule judges by
// its view.
func (l *looks) of(t events.Turn) *look {
	if seen := l.last[t.Key]; seen != nil && seen.now.Equal(t.Now) {
		return seen
	}
	return nil
}

// in is the view, with the commands of one lane.
func (l *look) in(lane events.Lane) *look {
	part := *l
	if lane == events.LaneWrite {
		part.reports = nil
	} else {
		part.commands = nil
	}
	return &part
}

// list is every object of a kind in the view.
func (l *look) list(kind kinds.Name) []metav1.Object { return l.objects[kind] }

// get is the object of a name in the view; nil if it has none.
func (l *look) get(ref events.Ref) metav1.Object {
	for _, obj := range l.objects[ref.Kind] {
		if obj.GetNamespace() == ref.Namespace && obj.GetName() == ref.Name {
			return obj
		}
	}
	return nil
}

// owned is every object of a kind in the view whose controller is the key's object.
func (l *look) owned(kind kinds.Name) (all []metav1.Object) {
	for _, obj := range l.objects[kind] {
		if l.own != nil && controllerOf(obj) == l.own.GetUID() {
			all = append(all, obj)
		}
	}
	return all
}

// live is every active pod in the view whose controller is the key's object.
func (l *look) live() (all []*corev1.Pod) {
	for _, obj := range l.owned(kinds.Pods.Name) {
		if pod := obj.(*corev1.Pod); active(pod) {
			all = append(all, pod)
		}
	}
	return all
}

// deletes are the objects of a kind that the decision deletes.
func (l *look) deletes(kind kinds.Name) map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, c := range l.commands {
		if c.Verb == events.VerbDelete && c.Kind == kind && c.If != nil {
			all[c.If.UID] = true
		}
	}
	return all
}

// creates are the commands that create objects of a kind.
func (l *look) creates(kind kinds.Name) (all []events.Command) {
	for _, c := range l.commands {
		if c.Verb == events.VerbCreate && c.Kind == kind {
			all = append(all, c)
		}
	}
	return all
}

// resized is the size of each object of a kind that the decision resizes, by UID, and the total
// size of those that it creates.
func (l *look) resized(kind kinds.Name) (sizes map[types.UID]int, created int) {
	sizes = map[types.UID]int{}
	for _, c := range l.commands {
		var body struct {
			Spec struct {
				Replicas *int `json:"replicas"`
			} `json:"spec"`
		}
		if c.Kind != kind || c.Subresource != "" || json.Unmarshal(c.Body, &body) != nil || body.Spec.Replicas == nil {
			continue
		}
		if c.Verb == events.VerbCreate {
			created += *body.Spec.Replicas
		} else if c.If != nil {
			sizes[c.If.UID] = *body.Spec.Replicas
		}
	}
	return sizes, created
}

// ready reports whether a pod says that it can serve.
func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
