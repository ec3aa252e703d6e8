// Package daemonset keeps one pod of each DaemonSet on every eligible node.
//
// A node is eligible if the template's selectors match it and the pod tolerates its
// taints. Every daemon pod tolerates the taints of an unhealthy node, because a node's
// problems are no reason to remove the pods that look after it. An affinity binds each
// pod to its node, and the scheduler places it there. ControllerRevisions store the
// templates. When the template changes, the controller deletes as many old pods as
// maxUnavailable allows, or creates as many new ones beside them as maxSurge allows. It
// replaces the first failed pod of a node at once, the next one after a second, and
// doubles the delay each time.
package daemonset

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Burst is the maximum number of creates, and of deletes, in one turn.
const Burst = 250

// Controller runs DaemonSets under the default feature gates.
var Controller = New(nil)

// New returns the controller with these feature gates changed from their defaults.
func New(gates gate.Set) reconcile.Controller[View] {
	gates = gates.Of(gate.TaintTolerationComparisonOperators)
	return reconcile.Controller[View]{
		Name:     "daemonset-controller",
		Aliases:  []string{"daemonset"},
		Identity: "daemon-set-controller",
		Queue:    "daemonset",
		Owns:     &kinds.DaemonSets.Kind,
		Inputs: []reconcile.Input{
			reconcile.Own(kinds.DaemonSets.Kind),
			{
				Kind: kinds.Pods.Kind, Keys: owner.Keys(kinds.DaemonSets, selectorOf),
				Also: []redact.Path{{{Name: "metadata"}, {Name: "annotations"}, {Name: failuresNote}}},
			},
			{Kind: kinds.Nodes.Kind, Keys: func(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
				return keysOfNode(s, was, now, gates)
			}},
			{Kind: kinds.ControllerRevisions.Kind, Keys: owner.Keys(kinds.DaemonSets, selectorOf)},
		},
		Writes: reconcile.Writes{
			template.Creates([]string{
				".metadata.labels['" + hashLabel + "']", ".metadata.labels['" + extensionsv1beta1.DaemonSetTemplateGenerationKey + "']",
				".metadata.annotations['" + failuresNote + "']", ".spec.affinity", ".spec.tolerations",
			}, nil),
			{Verb: events.VerbPatch, Kind: kinds.Pods.Name, On: reconcile.Beside, Child: true, Fields: []string{".metadata.ownerReferences", ".metadata.labels['" + hashLabel + "']"}},
			{Verb: events.VerbPatch, Kind: kinds.Pods.Name, On: reconcile.Beside, Fields: []string{".metadata.labels['" + hashLabel + "']"}, How: []types.PatchType{types.MergePatchType}},
			{Verb: events.VerbDelete, Kind: kinds.Pods.Name, On: reconcile.Beside},
			revision.Creates(),
			{Verb: events.VerbUpdate, Kind: kinds.ControllerRevisions.Name, On: reconcile.Beside, Child: true, Changes: []string{".revision", ".metadata.labels['" + hashLabel + "']"}},
			{Verb: events.VerbPatch, Kind: kinds.ControllerRevisions.Name, On: reconcile.Beside, Child: true, Fields: []string{".metadata.ownerReferences"}},
			{Verb: events.VerbDelete, Kind: kinds.ControllerRevisions.Name, On: reconcile.Beside},
			{Verb: events.VerbUpdate, Kind: kinds.DaemonSets.Name, Subresource: "status", On: reconcile.Itself},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.DaemonSets.Kind, On: reconcile.Itself, Reasons: []string{"SuccessfulCreate", "FailedCreate", "SuccessfulDelete", "FailedDelete", "SelectingAll", "FailedDaemonPod", "SucceededDaemonPod"}},
		},
		Settings: gates.Settings(),
		Observe: func(s reconcile.Snapshot, k events.Key) (View, bool) {
			v, ok := observe(s, k)
			v.Gates = gates
			return v, ok
		},
		Decide: decide,
		AsGood: asGood,
	}
}

func selectorOf(set *appsv1.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector }

// View is the input of one turn.
type View struct {
	Set *appsv1.DaemonSet `json:"set"`
	// Nodes are all nodes of the cluster.
	Nodes []*corev1.Node `json:"nodes,omitempty"`
	// Pods are the pods that the set controls, and the orphans that its selector matches.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Revisions are the revisions that the set controls, and the orphans that its
	// selector matches.
	Revisions []*appsv1.ControllerRevision `json:"revisions,omitempty"`
	// Taken are the names of other revisions that begin with the set's name.
	Taken []string `json:"taken,omitempty"`
	// Attempt makes the names of creates differ from those of a turn that failed.
	Attempt uint64 `json:"attempt,omitempty"`
	// Gates are the feature gates that are not at their defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

// keysOfNode maps a node to the sets for which its eligibility has changed. A node that
// is created or deleted maps to every set.
//
// Upstream: a node that is gone makes no set's turn, and the numbers in the status stay
// wrong until something else happens.
func keysOfNode(s reconcile.Snapshot, was, now reconcile.Object, gates gate.Set) []events.Key {
	before, known := was.Object.(*corev1.Node)
	after, there := now.Object.(*corev1.Node)
	compare := known && there
	if compare && maps.Equal(before.Labels, after.Labels) && slices.EqualFunc(before.Spec.Taints, after.Spec.Taints, sameTaint) {
		return nil // most changes of a node are heartbeats
	}
	var keys []events.Key
	for _, set := range reconcile.List(s, kinds.DaemonSets, "") {
		if compare {
			if f := fits(&set.Spec.Template.Spec, gates); f.verdict(before) == f.verdict(after) {
				continue
			}
		}
		keys = append(keys, events.Key{Namespace: set.Namespace, Name: set.Name})
	}
	return keys
}

func sameTaint(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	set, ok := reconcile.Get(s, kinds.DaemonSets, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Set: set, Attempt: names.Attempt(s, k, set)}
	selector, ok := label.Selector(set.Spec.Selector)
	if !ok || set.DeletionTimestamp != nil {
		return v, true
	}
	v.Nodes = reconcile.List(s, kinds.Nodes, "")
	v.Pods = owner.Candidates(s, kinds.Pods, set, selector)
	v.Revisions, v.Taken = revision.Of(s, set, selector, revisionPrefix(set))
	return v, true
}
