// Package podgroupprotection keeps PodGroups from being deleted while pods that have not ended
// are in them, by a finalizer. The API server's admission puts it on new groups; a deleted one
// loses it when no such pod names it any more.
//
// What is seen of the pods may be older than the deletion, so it only tells when a group
// stays. The finalizer goes under the condition that nothing needs the group: the writer
// lists the pods of its namespace live, just before it.
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
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// guard is the finalizer.
const guard = "scheduling.k8s.io/podgroup-protection"

// Controller is the group protection controller. A key is a PodGroup.
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
	Settings: gate.Set{gate.GenericWorkload: true}.Settings(), // it ran, so they are served
	Observe:  observe,
	Decide:   decide,
}

// View is what the turn of one group can see.
type View struct {
	Group *schedulingv1alpha2.PodGroup `json:"group"`
	// Pod is one that has not ended and is in the group. It is looked for when the group
	// is deleted.
	Pod string `json:"pod,omitempty"`
}

// groupsOf are the groups that a pod is in, and was in before.
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
		if events.InPodGroup(p, k.Name) {
			v.Pod = p.Name
			break
		}
	}
	return v, true
}

// decide lets a group go that no pod needs.
//
// Upstream: pkg/controller/scheduling/podgroupprotection, processPodGroup.
func decide(v View, _ time.Time) reconcile.Decision {
	next := *v.Group // shallow: only the list of finalizers changes, and is made anew
	switch {
	case next.DeletionTimestamp == nil:
		return reconcile.Nothing("the group is not deleted")
	case !finalizer.Has(&next, guard):
		return reconcile.Nothing("the group is deleted, and not held by us")
	case v.Pod != "":
		return reconcile.Nothing("the group is deleted, but the pod " + v.Pod + " is in it")
	default:
		finalizer.Remove(&next, guard)
		return reconcile.Do("the group is deleted, and no pod is seen that is in it",
			reconcile.Update(kinds.PodGroups.Kind, &next, reconcile.IfUnused()))
	}
}
