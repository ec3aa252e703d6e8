// Package replicas keeps as many pods running as a set wants, for ReplicaSets and
// ReplicationControllers.
//
// A set adopts the pods that its selector matches, releases those that it does not match
// any more, and creates or deletes pods until their number is right, at most [Burst] at
// a time. It reports the result in its status. The shell makes sure that no turn is
// decided on a view older than the effects of the last one, so the decisions here only
// count what is seen.
//
// The code here treats every set as a ReplicaSet. [Sets] holds the differences between
// the kinds, which the controller of each kind fills in.
package replicas

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Burst is how many creates or deletes one turn decides at most.
const Burst = 500

// DesiredNote is the annotation in which a Deployment writes, on each of its
// ReplicaSets, the replicas that it wants in total.
const DesiredNote = "deployment.kubernetes.io/desired-replicas"

// Metrics are the metrics of every controller of sets.
func Metrics() []reconcile.Metric { return []reconcile.Metric{ageRatio} }

// Sets is one kind of sets.
type Sets[T metav1.Object] struct {
	Kind kinds.Of[T]
	// ReplicaSet returns a set as a ReplicaSet. It may share parts with the set.
	ReplicaSet func(T) *appsv1.ReplicaSet
	// With returns a set with another status. It may share parts with the old one.
	With func(set *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) metav1.Object
	// CountsLeaving reports whether the status counts terminating pods.
	CountsLeaving bool
	// Siblings reports whether pods are deleted first from nodes with many pods of the
	// sets of one controller.
	Siblings bool
	// Gates are the feature gates that differ from their defaults.
	Gates gate.Set
}

// Writes is the promise of the controller that keeps sets of this kind.
func (s Sets[T]) Writes() reconcile.Writes {
	return reconcile.Writes{
		template.Creates(nil, nil),
		{Verb: events.VerbPatch, Kind: kinds.Pods.Name, On: reconcile.Beside, Child: true, Fields: []string{".metadata.ownerReferences"}},
		{Verb: events.VerbDelete, Kind: kinds.Pods.Name, On: reconcile.Beside},
		{Verb: events.VerbUpdate, Kind: s.Kind.Name, Subresource: "status", On: reconcile.Itself},
	}
}

// Events is the promise of the Events.
func (s Sets[T]) Events() reconcile.EventPromises {
	return reconcile.EventPromises{{
		Kind: s.Kind.Kind, On: reconcile.Itself, Reasons: []string{"SuccessfulCreate", "FailedCreate", "SuccessfulDelete", "FailedDelete"},
	}}
}

// Inputs are the sets and their pods.
func (s Sets[T]) Inputs() []reconcile.Input {
	return []reconcile.Input{
		reconcile.Own(s.Kind.Kind),
		{Kind: kinds.Pods.Kind, Keys: owner.Keys(s.Kind, func(set T) *metav1.LabelSelector { return s.ReplicaSet(set).Spec.Selector })},
	}
}

// View is what one turn can see.
type View struct {
	// Set is the set, as a ReplicaSet.
	Set *appsv1.ReplicaSet `json:"set"`
	// Pods are the pods that the set controls, and the orphans that its selector
	// matches.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Crowd counts, by node, the active pods of this set and of the other sets
	// of its controller. It is collected only when there are pods to spare.
	Crowd pod.Crowd `json:"crowd,omitempty"`
	// Failure is what failed when this set last adopted, created or deleted pods; nil
	// when nothing did.
	Failure *Failure `json:"failure,omitempty"`
	// Gates are the feature gates that differ from their defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

// Failure is how an attempt of a set ended.
type Failure struct {
	// Attempt identifies the attempt.
	Attempt uint64 `json:"attempt"`
	// Result is the result of the first command that failed.
	Result events.Result `json:"result"`
}

// Observe collects the view of a set; ok is false when it was deleted.
func (s Sets[T]) Observe(snapshot reconcile.Snapshot, k events.Key) (View, bool) {
	found, ok := reconcile.Get(snapshot, s.Kind, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	set := s.ReplicaSet(found)
	v := View{Set: set, Failure: failure(snapshot, k, set), Gates: s.Gates}
	selector, ok := label.Selector(set.Spec.Selector)
	if !ok {
		return v, true
	}
	active := 0
	for _, p := range reconcile.ControlledBy(snapshot, kinds.Pods, set.UID) {
		if p.Namespace == set.Namespace {
			v.Pods = append(v.Pods, p)
			if pod.Active(p) {
				active++
			}
		}
	}
	for _, p := range reconcile.Orphans(snapshot, kinds.Pods, set.Namespace) {
		if pod.Active(p) && selector.Matches(labels.Set(p.Labels)) {
			v.Pods = append(v.Pods, p)
		}
	}
	if s.Siblings && active > v.wanted() {
		v.Crowd = s.crowd(snapshot, set)
	}
	return v, true
}

func failure(s reconcile.Snapshot, k events.Key, set *appsv1.ReplicaSet) *Failure {
	last, ok := reconcile.LastOf(s, k, events.LaneWrite, set)
	if !ok {
		return nil
	}
	result, failed := last.Failure()
	if !failed {
		return nil
	}
	return &Failure{Attempt: last.Turn, Result: result}
}

// crowd counts the pods that are related to a set's own: those that the sets of the same
// controller select.
//
// Upstream: pkg/controller/replicaset/replica_set.go, getIndirectlyRelatedPods;
// a set without a controller has no relations, not even with itself.
func (s Sets[T]) crowd(snapshot reconcile.Snapshot, set *appsv1.ReplicaSet) pod.Crowd {
	controller, ok := owner.Of(set)
	if !ok {
		return nil
	}
	var selectors []labels.Selector
	for _, found := range reconcile.ControlledBy(snapshot, s.Kind, controller.UID) {
		sibling := s.ReplicaSet(found)
		if selector, ok := label.Selector(sibling.Spec.Selector); ok && sibling.Namespace == set.Namespace {
			selectors = append(selectors, selector)
		}
	}
	company := pod.Crowd{}
	for _, p := range reconcile.List(snapshot, kinds.Pods, set.Namespace) {
		for _, selector := range selectors {
			if selector.Matches(labels.Set(p.Labels)) {
				company.Join(p)
				break
			}
		}
	}
	return company
}

// wanted is how many pods the set wants. The API server sets a missing number to 1.
func (v View) wanted() int {
	if v.Set.Spec.Replicas == nil {
		return 1
	}
	return int(*v.Set.Spec.Replicas)
}

// available reports whether a pod counts as available to this set.
func (v View) available(p *corev1.Pod, now time.Time) bool {
	return pod.Available(p, v.Set.Spec.MinReadySeconds, now)
}
