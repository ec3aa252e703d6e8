// Package deployment rolls out Deployments.
//
// A Deployment owns one ReplicaSet for each template that it ever had. The set with the
// current template is the new set, all others are old. A rollout moves replicas from the
// old sets to the new one, as fast as the strategy allows and never faster than pods
// become available. One decision is one step: adopt or release sets, create the new set,
// scale it up, scale the old ones down, or delete old history. The next step is decided
// on the result of this one.
//
// Each step also reports the status: the counts, whether enough replicas are available,
// and whether the rollout progresses or has missed its deadline. If the number of
// replicas changes in the middle of a rollout, all sets are scaled in proportion to their sizes.
//
// Annotations of the sets and the Deployment store the number of the revision, earlier
// revisions of a set, and how many replicas the Deployment wanted and allowed when the
// set was last scaled.
package deployment

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller rolls out Deployments under the default feature gates.
var Controller = New(nil)

// New returns the controller with these feature gates changed from their defaults.
func New(gates gate.Set) reconcile.Controller[View] {
	gates = gates.Of(gate.DeploymentReplicaSetTerminatingReplicas)
	return reconcile.Controller[View]{
		Name:    "deployment-controller",
		Aliases: []string{"deployment"},
		Queue:   "deployment",
		Owns:    &kinds.Deployments.Kind,
		Inputs: []reconcile.Input{
			reconcile.Own(kinds.Deployments.Kind),
			{Kind: kinds.ReplicaSets.Kind, Keys: keysOfSet},
			{Kind: kinds.Pods.Kind, Keys: keysOfPod},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.ReplicaSets.Name, On: reconcile.Beside, Name: reconcile.After, Child: true, Fields: append([]string{".status"}, template.Made...),
				Copies: []reconcile.Copy{{To: ".spec.template", From: ".spec.template", But: []string{".metadata.labels['" + hashLabel + "']"}}}},
			{Verb: events.VerbUpdate, Kind: kinds.ReplicaSets.Name, On: reconcile.Beside, Child: true, Changes: []string{".metadata.annotations", ".spec.replicas", ".spec.minReadySeconds"}},
			{Verb: events.VerbPatch, Kind: kinds.ReplicaSets.Name, On: reconcile.Beside, Child: true, Fields: []string{".metadata.ownerReferences"}},
			{Verb: events.VerbDelete, Kind: kinds.ReplicaSets.Name, On: reconcile.Beside, Unchanged: true},
			{Verb: events.VerbUpdate, Kind: kinds.Deployments.Name, On: reconcile.Itself, Changes: []string{".metadata.annotations", ".spec.template"}, Where: ".metadata.annotations['" + appsv1.DeprecatedRollbackTo + "']"},
			{Verb: events.VerbUpdate, Kind: kinds.Deployments.Name, Subresource: "status", On: reconcile.Itself, Changes: []string{".metadata.annotations['" + revisionNote + "']"}},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.Deployments.Kind, On: reconcile.Itself, Reasons: []string{"ScalingReplicaSet", "SelectingAll", "ReplicaSetCreateError", "DeploymentRollbackRevisionNotFound", "DeploymentRollbackTemplateUnchanged", "DeploymentRollback"}},
		},
		Settings: gates.Settings(),
		Observe: func(s reconcile.Snapshot, k events.Key) (View, bool) {
			v, ok := observe(s, k)
			v.Gates = gates
			return v, ok
		},
		Decide: decide,
	}
}

// View is the input of one turn.
type View struct {
	// Deployment is the object of the key.
	Deployment *appsv1.Deployment `json:"deployment"`
	// Sets are the ReplicaSets that the Deployment controls, and the orphans that its
	// selector matches.
	Sets []*appsv1.ReplicaSet `json:"sets,omitempty"`
	// Running counts the pods of each set, by its uid, that have not ended. Only the
	// strategy Recreate fills it, because it waits for those pods.
	Running map[types.UID]int `json:"running,omitempty"`
	// Failure is the first failed command of the last acting turn; nil if none failed.
	Failure *events.Result `json:"failure,omitempty"`
	// Gates are the feature gates that are not at their defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	d, ok := reconcile.Get(s, kinds.Deployments, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Deployment: d}
	if last, ok := reconcile.LastOf(s, k, events.LaneWrite, d); ok {
		if result, failed := last.Failure(); failed {
			v.Failure = &result
		}
	}
	for _, set := range reconcile.ControlledBy(s, kinds.ReplicaSets, d.UID) {
		if set.Namespace == d.Namespace {
			v.Sets = append(v.Sets, set)
		}
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		v.Running = running(s, v.Sets)
	}
	selector, ok := label.Selector(d.Spec.Selector)
	if !ok {
		return v, true
	}
	for _, set := range reconcile.Orphans(s, kinds.ReplicaSets, d.Namespace) {
		if set.DeletionTimestamp == nil && selector.Matches(labels.Set(set.Labels)) {
			v.Sets = append(v.Sets, set)
		}
	}
	return v, true
}

// running counts the pods of sets that have not ended, whatever their labels.
func running(s reconcile.Snapshot, sets []*appsv1.ReplicaSet) map[types.UID]int {
	count := map[types.UID]int{}
	for _, set := range sets {
		for _, p := range reconcile.ControlledBy(s, kinds.Pods, set.UID) {
			if !pod.Terminal(p) {
				count[set.UID]++
			}
		}
	}
	return count
}
