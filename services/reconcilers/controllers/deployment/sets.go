package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// rollout is a Deployment with its sets, divided into new and old. The steps of a
// decision modify the desired state of the sets. The commands are the difference from the
// observed state, one for each set.
type rollout struct {
	deployment *appsv1.Deployment
	fresh      *set   // the set with the current template; nil if there is none
	old        []*set // the others, oldest first
	running    map[types.UID]int
	failure    *events.Result
	gates      gate.Set
	now        time.Time
	begun      string // the name of the new set that this turn creates; empty if it creates none
}

// set is an observed ReplicaSet and its desired state.
type set struct {
	seen     *appsv1.ReplicaSet
	size     int32             // desired spec.replicas
	minReady int32             // desired spec.minReadySeconds
	notes    map[string]string // desired annotations
	changed  bool
	recorded bool // the annotations or minReadySeconds of the new set change
}

// newRollout divides the sets into new and old. If several have the current template, the
// oldest is the new one.
//
// Upstream: pkg/controller/deployment/util, FindNewReplicaSet.
func newRollout(v View, mine []*appsv1.ReplicaSet, now time.Time) *rollout {
	r := &rollout{deployment: v.Deployment, running: v.Running, failure: v.Failure, gates: v.Gates, now: now}
	for _, seen := range slices.SortedFunc(slices.Values(mine), olderFirst) {
		s := &set{seen: seen, size: sizeOf(seen), minReady: seen.Spec.MinReadySeconds, notes: seen.Annotations}
		if r.fresh == nil && sameTemplate(&seen.Spec.Template, &v.Deployment.Spec.Template) {
			r.fresh = s
			continue
		}
		r.old = append(r.old, s)
	}
	return r
}

// all returns every set: the old ones, oldest first, then the new one.
func (r *rollout) all() []*set {
	if r.fresh == nil {
		return r.old
	}
	return append(slices.Clone(r.old), r.fresh)
}

// active returns the sets whose desired size is not zero.
func active(sets []*set) []*set {
	return slices.DeleteFunc(slices.Clone(sets), func(s *set) bool { return s.size == 0 })
}

// sum adds up a number of each set.
func sum(sets []*set, of func(*set) int32) int32 {
	var total int32
	for _, s := range sets {
		total += of(s)
	}
	return total
}

func size(s *set) int32      { return s.size }
func available(s *set) int32 { return s.seen.Status.AvailableReplicas }

// sizeOf returns the number of replicas that a set asks for. The API server defaults it to 1.
func sizeOf(s *appsv1.ReplicaSet) int32 {
	if s.Spec.Replicas == nil {
		return 1
	}
	return *s.Spec.Replicas
}

func olderFirst(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// resize sets the desired size of a set, and the annotations with what the Deployment
// wants and allows. It does nothing if the size is right.
//
// Upstream: then the notes may stay wrong.
func (r *rollout) resize(s *set, to int32) {
	if s.size != to {
		r.settle(s, to)
	}
}

// settle is like resize, but also renews the annotations of a set that has the right size.
func (r *rollout) settle(s *set, to int32) {
	s.note(desiredNote, strconv.Itoa(int(wanted(r.deployment))))
	s.note(mostNote, strconv.Itoa(int(most(r.deployment))))
	s.changed = s.changed || s.size != to
	s.size = to
}

// note sets an annotation.
func (s *set) note(key, value string) {
	if have, there := s.notes[key]; there && have == value {
		return
	}
	notes := make(map[string]string, len(s.notes)+1)
	for k, v := range s.notes {
		notes[k] = v
	}
	notes[key] = value
	s.notes, s.changed = notes, true
}

// changes returns the commands that bring the sets to their desired state.
func (r *rollout) changes() []events.Command {
	var commands []events.Command
	for _, s := range r.all() {
		if s.changed {
			commands = append(commands, r.change(s))
		}
	}
	return commands
}

func (r *rollout) change(s *set) events.Command {
	next := *s.seen // shallow: the parts are only read
	next.TypeMeta = metav1.TypeMeta{APIVersion: kinds.ReplicaSets.APIVersion(), Kind: kinds.ReplicaSets.Kind.Kind}
	next.Annotations = s.notes
	next.Spec.Replicas, next.Spec.MinReadySeconds = &s.size, s.minReady
	if was := sizeOf(s.seen); was != s.size {
		return reconcile.Update(kinds.ReplicaSets.Kind, &next, reconcile.WithEvents(r.scaled(s.seen.Name, was, s.size), nil))
	}
	return reconcile.Update(kinds.ReplicaSets.Kind, &next)
}

// scaled returns the Event about a scaled set.
func (r *rollout) scaled(name string, from, to int32) *events.Notice {
	direction := "up"
	if to < from {
		direction = "down"
	}
	return notice(r.deployment, corev1.EventTypeNormal, "ScalingReplicaSet",
		fmt.Sprintf("Scaled %s replica set %s from %d to %d", direction, name, from, to))
}
