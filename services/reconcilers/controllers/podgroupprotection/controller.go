// Package podgroupprotection protects PodGroups that contain pods which have not ended, by a
// finalizer. The API server's admission adds it to new groups; the controller removes it from
// a deleted group when no such pod names it any more.
//
// The view of pods may be older than the deletion, so a pod in it only shows that the group
// must stay. The removal of the finalizer is conditional on nothing needing the group: the
// writer lists the pods of its namespace live just before.
//
// The API is alpha: the controller runs where --feature-gates says that the API server serves
// it (GenericWorkload), as upstream's does.
package podgroupprotection

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// guard is the finalizer.
const guard = "scheduling.k8s.io/podgroup-protection"

// protection removes the finalizer; the API server's admission adds it.
var protection = finalizer.Protection{Kind: kinds.PodGroups.Kind, Finalizer: guard, Noun: "group"}

// Controller is the PodGroup protection controller. A key is a PodGroup.
var Controller = reconcile.Controller[View]{
	Name:  "podgroup-protection-controller",
	Queue: "podgroupprotection",
	Owns:  &kinds.PodGroups.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.PodGroups.Kind),
		{Kind: kinds.Pods.Kind, Keys: groupsOf},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbUpdate, Kind: kinds.PodGroups.Name, On: reconcile.Itself, Changes: []string{".metadata.finalizers"}, Unused: true},
	},
	Settings: gate.Set{gate.GenericWorkload: true}.Settings(), // the controller runs only where they are served
	Observe:  observe,
	Decide:   decide,
}

// View is what the turn of one group can see.
type View struct {
	Group *schedulingv1alpha2.PodGroup `json:"group"`
	// Pod is a pod of the group that has not ended. It is collected only for a deleted group.
	Pod string `json:"pod,omitempty"`
}

// groupsOf maps a pod to its group, and to its earlier one.
func groupsOf(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, obj := range []reconcile.Object{now, was} {
		p, ok := obj.Object.(*corev1.Pod)
		if !ok || p.Spec.SchedulingGroup == nil || p.Spec.SchedulingGroup.PodGroupName == nil {
			continue
		}
		if key := (events.Key{Namespace: p.Namespace, Name: *p.Spec.SchedulingGroup.PodGroupName}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	group, ok := reconcile.Get(s, kinds.PodGroups, k.Namespace, k.Name)
	if !ok || group.DeletionTimestamp == nil {
		return View{Group: group}, ok
	}
	v := View{Group: group}
	for _, p := range reconcile.List(s, kinds.Pods, k.Namespace) {
		if query.InPodGroup(p, k.Name) {
			v.Pod = p.Name
			break
		}
	}
	return v, true
}

// decide removes the finalizer of a deleted group that no pod needs.
//
// Upstream: pkg/controller/scheduling/podgroupprotection, processPodGroup.
func decide(v View, _ time.Time) reconcile.Decision {
	switch {
	case v.Group.DeletionTimestamp == nil:
		return reconcile.Nothing("the group is not deleted")
	case !finalizer.Has(v.Group, guard):
		return reconcile.Nothing("the group is deleted, and has no finalizer of this controller")
	case v.Pod != "":
		return reconcile.Nothing("the group is deleted, but the pod " + v.Pod + " is in it")
	default:
		return protection.Release(v.Group, "the group is deleted, and has no pods", reconcile.IfUnused())
	}
}
