// Package deployment rolls Deployments out.
//
// A Deployment owns one ReplicaSet for each template that it ever had. The set
// of the present template is the new one, all others are old. A rollout moves
// replicas from the old sets to the new one, as fast as the strategy allows and
// never faster than pods become available. One decision is one step: adopt or
// release sets, have the new set created, grow it, shrink the old ones, or throw
// away history. The next step is decided on what became of this one.
//
// Beside every step the status is reported, as far as it is seen: counts, whether
// enough is available, and whether the rollout gets on or has missed its
// deadline. A change of the number of replicas in the middle of a rollout is
// shared among the sets in proportion to their sizes.
//
// A few things live in annotations of the sets and the Deployment: the number of
// the revision, the revisions that a set was before, how many replicas the
// Deployment wanted and allowed when the set was last scaled.
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

// Controller rolls Deployments out, under the default feature gates.
var Controller = New(nil)

// New makes the controller, under feature gates that are not at their defaults.
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
		Tells: reconcile.Tells{
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

// View is what one turn can see.
type View struct {
	// Deployment is the one in question.
	Deployment *appsv1.Deployment `json:"deployment"`
	// Sets are the ReplicaSets that it controls, and the orphans that it selects.
	Sets []*appsv1.ReplicaSet `json:"sets,omitempty"`
	// Running counts the pods of each set, by its uid, that have not ended. It
	// is collected for the strategy Recreate only, which waits for them.
	Running map[types.UID]int `json:"running,omitempty"`
	// Failure is the first command that failed in the last turn that acted; nil
	// when none did.
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
	if last, ok := reconcile.LastOf(s, k, events.Act, d); ok {
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
