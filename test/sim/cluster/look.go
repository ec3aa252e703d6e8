package cluster

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Look is the view that a decision rests on, and its commands. The rules judge a controller by
// its view: it cannot know later versions.
type Look struct {
	Key      events.Key
	Own      metav1.Object // the key's object; nil: the view had none
	objects  map[kinds.Name][]metav1.Object
	Commands []events.Command // of the lane Act
	Reports  []events.Command // of the lane Tell
	now      time.Time
}

// Looks keeps the view of the last decision about each key, in one process.
type Looks struct {
	own   kinds.Name
	kinds []kinds.Name // that the rules ask about
	last  map[events.Key]*Look
}

// NewLooks keeps the views of a controller, with the objects of the kinds that its rules read.
func NewLooks(d reconcile.Description, read []kinds.Name) *Looks {
	l := &Looks{kinds: read, last: map[events.Key]*Look{}}
	if d.Owns != nil {
		l.own = d.Owns.Name
	}
	return l
}

// Take records the view of a decision. The objects are shared, and never changed.
func (l *Looks) Take(s reconcile.Snapshot, k events.Key, now time.Time, d reconcile.Decision) {
	if len(l.kinds) == 0 {
		return
	}
	seen := &Look{Key: k, now: now, objects: map[kinds.Name][]metav1.Object{}, Commands: d.In(events.LaneWrite).Commands, Reports: d.In(events.LaneStatus).Commands}
	if obj, ok := s.Get(l.own, k.Namespace, k.Name); ok {
		seen.Own = obj
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

// Of is the view of a turn that is being stored; nil for a controller that no rule judges by
// its view.
func (l *Looks) Of(t events.Turn) *Look {
	if seen := l.last[t.Key]; seen != nil && seen.now.Equal(t.Now) {
		return seen
	}
	return nil
}

// In is the view, with the commands of one lane.
func (l *Look) In(lane events.Lane) *Look {
	part := *l
	if lane == events.LaneWrite {
		part.Reports = nil
	} else {
		part.Commands = nil
	}
	return &part
}

// List is every object of a kind in the view.
func (l *Look) List(kind kinds.Name) []metav1.Object { return l.objects[kind] }

// Get is the object of a name in the view; nil if it has none.
func (l *Look) Get(ref events.Ref) metav1.Object {
	for _, obj := range l.objects[ref.Kind] {
		if obj.GetNamespace() == ref.Namespace && obj.GetName() == ref.Name {
			return obj
		}
	}
	return nil
}

// Owned is every object of a kind in the view whose controller is the key's object.
func (l *Look) Owned(kind kinds.Name) (all []metav1.Object) {
	for _, obj := range l.objects[kind] {
		if l.Own != nil && ControllerOf(obj) == l.Own.GetUID() {
			all = append(all, obj)
		}
	}
	return all
}

// Live is every active pod in the view whose controller is the key's object.
func (l *Look) Live() (all []*corev1.Pod) {
	for _, obj := range l.Owned(kinds.Pods.Name) {
		if pod := obj.(*corev1.Pod); Active(pod) {
			all = append(all, pod)
		}
	}
	return all
}

// Deletes are the objects of a kind that the decision deletes.
func (l *Look) Deletes(kind kinds.Name) map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, c := range l.Commands {
		if c.Verb == events.VerbDelete && c.Kind == kind && c.If != nil {
			all[c.If.UID] = true
		}
	}
	return all
}

// Creates are the commands that create objects of a kind.
func (l *Look) Creates(kind kinds.Name) (all []events.Command) {
	for _, c := range l.Commands {
		if c.Verb == events.VerbCreate && c.Kind == kind {
			all = append(all, c)
		}
	}
	return all
}

// Resized is the size of each object of a kind that the decision resizes, by UID, and the total
// size of those that it creates.
func (l *Look) Resized(kind kinds.Name) (sizes map[types.UID]int, created int) {
	sizes = map[types.UID]int{}
	for _, c := range l.Commands {
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
