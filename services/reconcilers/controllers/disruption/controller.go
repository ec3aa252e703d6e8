// Package disruption computes for every PodDisruptionBudget how many of its pods may be
// evicted now. The API server decrements that number with every eviction that it allows,
// and adds the pod to the status. The pod counts as gone until it is terminating, or
// until two minutes have passed in which it did not.
//
// The controllers of the pods determine how many pods there should be. The controller
// watches the built-in kinds. For any other kind it asks for the scale, whenever the pods
// of the budget differ from those at the last question. If the number cannot be
// determined, no pod may be evicted.
//
// If a pod has the condition DisruptionTarget and is not terminating after two minutes,
// the controller sets the condition to False.
//
// Upstream looks at a budget when the budget or one of its pods changes, so it notices
// that a Deployment was scaled only when a pod comes or goes. This controller looks at
// the budget when the Deployment changes, too. Where a pod has several budgets, upstream
// updates the one that it finds first; this controller updates all, and the pod's own key
// sends the Event about it.
package disruption

import (
	"encoding/json"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the disruption controller. A key is a budget, or a pod that has the
// condition DisruptionTarget or that several budgets select.
var Controller = reconcile.Controller[View]{
	Name:    "disruption-controller",
	Aliases: []string{"disruption"},
	Source:  "controllermanager",
	Queue:   "disruption",
	Owns:    &kinds.PodDisruptionBudgets.Kind,
	Inputs: []reconcile.Input{
		{Kind: kinds.PodDisruptionBudgets.Kind, Keys: keysOfBudget},
		{Kind: kinds.Pods.Kind, Keys: keysOfPod},
		{Kind: kinds.ReplicationControllers.Kind, Keys: budgetsBeside},
		{Kind: kinds.ReplicaSets.Kind, Keys: budgetsBeside},
		{Kind: kinds.Deployments.Kind, Keys: budgetsBeside},
		{Kind: kinds.StatefulSets.Kind, Keys: budgetsBeside},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbUpdate, Kind: kinds.PodDisruptionBudgets.Name, Subresource: "status", On: reconcile.Itself},
		{Verb: events.VerbPatch, Kind: kinds.Pods.Name, Subresource: "status", On: reconcile.Itself, Fields: []string{".status.conditions"}, Unchanged: true,
			Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{string(corev1.DisruptionTarget)}}, {Path: ".status.conditions[*].status", One: []string{string(corev1.ConditionFalse)}}}},
		{Verb: events.VerbAsk, Any: true, Subresource: scale, On: reconcile.Beside},
	},
	Events: reconcile.EventPromises{
		{Kind: kinds.PodDisruptionBudgets.Kind, On: reconcile.Itself, Reasons: []string{noPods, failed, unmanaged}},
		{Kind: kinds.Pods.Kind, On: reconcile.Beside, Reasons: []string{notDeleted, multiple}},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// scale is the subresource with the number of pods that an owner wants.
const scale = "scale"

// View is the input of one turn: a budget and its pods, or a pod.
type View struct {
	Budget *policyv1.PodDisruptionBudget `json:"budget,omitempty"`
	// Pods are the pods that the budget selects. Select is the error of an invalid selector.
	Pods   []*corev1.Pod `json:"pods,omitempty"`
	Select string        `json:"select,omitempty"`
	// Sizes are the numbers of pods that their controllers want, by the uid in the pods'
	// references. A controller of a watched kind that was not found is missing.
	Sizes map[types.UID]Size `json:"sizes,omitempty"`
	// Answers are the last answers about the other controllers, also by uid.
	Answers map[types.UID]Answer `json:"answers,omitempty"`

	// Pod is a pod that has the condition DisruptionTarget or several budgets. Budget is nil then.
	Pod *corev1.Pod `json:"pod,omitempty"`
	// Several are the names of the pod's budgets, if it has more than one. Told are the
	// names in the last Event.
	Several []string `json:"several,omitempty"`
	Told    []string `json:"told,omitempty"`
}

// Size is how many pods an owner wants. Of is the uid of that owner: the Deployment, if
// the pods are controlled by its ReplicaSets.
type Size struct {
	Of       types.UID `json:"of"`
	Replicas int32     `json:"replicas"`
}

// Answer is the API server's answer about the scale of an owner.
type Answer struct {
	// UID is the uid of the scale, empty if there is none. Replicas is how many pods the owner wants.
	UID      types.UID `json:"uid,omitempty"`
	Replicas int32     `json:"replicas,omitempty"`
	// Failure is the error of the question. Lacking is true if the kind has no scale or is not served.
	Failure string `json:"failure,omitempty"`
	Lacking bool   `json:"lacking,omitempty"`
	// Note is the note of the question.
	Note Note `json:"note"`
	// At is the time of the answer.
	At time.Time `json:"at"`
}

// Note identifies the owner of a question, and its occasion.
type Note struct {
	UID types.UID `json:"uid"`
	// Occasion is a hash of the pods that the budget had.
	Occasion string `json:"occasion"`
}

// keysOfPod maps a pod to the budgets that select it, or did before, and to its own key
// if it has the condition DisruptionTarget or several budgets select it.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	itself := false
	for _, obj := range []reconcile.Object{now, was} {
		if obj.None() {
			continue
		}
		budgets := budgetsOf(s, obj)
		for _, name := range budgets {
			if key := (events.Key{Namespace: obj.GetNamespace(), Name: name}); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		itself = itself || len(budgets) > 1
	}
	p, there := now.Object.(*corev1.Pod)
	if !there {
		p, _ = was.Object.(*corev1.Pod)
	}
	if p != nil && (itself || there && claimsDisruption(p)) {
		keys = append(keys, keyOfPod(p))
	}
	return keys
}

func keyOfPod(p metav1.Object) events.Key {
	return events.Key{Kind: kinds.Pods.Name, Namespace: p.GetNamespace(), Name: p.GetName()}
}

// budgetsOf returns the sorted names of the budgets that select a pod.
func budgetsOf(s reconcile.Snapshot, p metav1.Object) (names []string) {
	for _, b := range reconcile.List(s, kinds.PodDisruptionBudgets, p.GetNamespace()) {
		if selects(b, p) {
			names = append(names, b.Name)
		}
	}
	return names
}

// most is the maximum number of pods whose keys a created, deleted or reselecting budget asks for.
const most = 50

// keysOfBudget maps a budget to itself. If it is created, deleted or has a new selector,
// it also maps to the pods that it shares, or did, with other budgets, at most [most];
// the remaining ones get their turn when they change.
//
// Upstream: users are told of such a pod when it changes.
func keysOfBudget(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*policyv1.PodDisruptionBudget)
	after, _ := now.Object.(*policyv1.PodDisruptionBudget)
	either := after
	if either == nil {
		either = before
	}
	keys := []events.Key{{Namespace: either.Namespace, Name: either.Name}}
	if before != nil && after != nil && equality.Semantic.DeepEqual(before.Spec.Selector, after.Spec.Selector) {
		return keys
	}
	others := slices.DeleteFunc(reconcile.List(s, kinds.PodDisruptionBudgets, either.Namespace), func(o *policyv1.PodDisruptionBudget) bool { return o.Name == either.Name })
	if len(others) == 0 {
		return keys
	}
	for _, p := range reconcile.List(s, kinds.Pods, either.Namespace) {
		its := before != nil && selects(before, p) || after != nil && selects(after, p)
		if !its || !slices.ContainsFunc(others, func(o *policyv1.PodDisruptionBudget) bool { return selects(o, p) }) {
			continue
		}
		if keys = append(keys, keyOfPod(p)); len(keys) > most {
			break
		}
	}
	return keys
}

func selects(b *policyv1.PodDisruptionBudget, obj metav1.Object) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(obj.GetLabels()))
}

// budgetsBeside maps an owner that controls pods to all budgets of its namespace, if it
// is created or deleted or wants another number of pods.
func budgetsBeside(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if !was.None() && !now.None() {
		before, _ := sizeOf(was.Object)
		after, _ := sizeOf(now.Object)
		if before == after {
			return nil
		}
	}
	if now.None() {
		now = was
	}
	var keys []events.Key
	for _, b := range reconcile.List(s, kinds.PodDisruptionBudgets, now.GetNamespace()) {
		keys = append(keys, events.Key{Namespace: b.Namespace, Name: b.Name})
	}
	return keys
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	if k.Kind == kinds.Pods.Name {
		return observePod(s, k)
	}
	b, ok := reconcile.Get(s, kinds.PodDisruptionBudgets, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Budget: b, Answers: answers(s, k, b)}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		v.Select = err.Error()
		return v, true
	}
	for _, p := range reconcile.List(s, kinds.Pods, k.Namespace) {
		if selector.Matches(labels.Set(p.Labels)) {
			v.Pods = append(v.Pods, p)
		}
	}
	v.Sizes = sizes(s, v.Pods)
	return v, true
}

func observePod(s reconcile.Snapshot, k events.Key) (View, bool) {
	p, ok := reconcile.Get(s, kinds.Pods, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Pod: p}
	if several := budgetsOf(s, p); len(several) > 1 {
		v.Several = several
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, p); ok {
		v.Told = toldIn(last)
	}
	return v, true
}

// memory is the note of a report about a pod: the budgets in the last Event.
type memory struct {
	Budgets []string `json:"budgets"`
}

func toldIn(o events.Outcome) []string {
	var m memory
	for _, r := range o.Results {
		if !r.OK() || r.Answer == nil || json.Unmarshal(r.Answer.Note, &m) != nil {
			return nil
		}
	}
	return m.Budgets
}

// sizes finds the controllers of pods that are of a watched kind.
func sizes(s reconcile.Snapshot, pods []*corev1.Pod) map[types.UID]Size {
	found := map[types.UID]Size{}
	for _, p := range pods {
		ref, ok := owner.Of(p)
		if _, known := found[ref.UID]; !ok || known || !readable(ref) {
			continue
		}
		controller, ok := s.ByUID(ref.UID)
		if !ok || controller.GetNamespace() != p.Namespace || !owner.Refers(inApps(ref), controller.Kind, controller) {
			continue
		}
		if size, ok := sized(s, controller); ok {
			found[ref.UID] = size
		}
	}
	return found
}

// sized returns the size of an owner that controls pods; for a ReplicaSet of a Deployment
// the Deployment's.
//
// Upstream: getPodDeployment, getPodReplicaSet and, for a set whose Deployment is not
// there, getScaleController, which asks for the scale of the set.
func sized(s reconcile.Snapshot, controller reconcile.Object) (Size, bool) {
	if ref, ok := owner.Of(controller); ok && controller.Kind.Name == kinds.ReplicaSets.Name && ref.Kind == kinds.Deployments.Kind.Kind {
		if above, ok := s.ByUID(ref.UID); ok && owner.Refers(inApps(ref), kinds.Deployments.Kind, above) {
			controller = above
		}
	}
	replicas, ok := sizeOf(controller.Object)
	return Size{Of: controller.GetUID(), Replicas: replicas}, ok
}

// answers returns the last answers about scales. The occasion in the note of an answer
// limits how long it counts.
func answers(s reconcile.Snapshot, k events.Key, b *policyv1.PodDisruptionBudget) map[types.UID]Answer {
	last, ok := reconcile.LastOf(s, k, events.LaneWrite, b)
	if !ok {
		return nil
	}
	said := map[types.UID]Answer{}
	for _, r := range last.Results {
		a := Answer{At: last.At}
		if r.Answer == nil || json.Unmarshal(r.Answer.Note, &a.Note) != nil {
			continue
		}
		var has autoscalingv1.Scale
		switch {
		case r.Status == events.Refused && r.Reason == "Stale", r.Status == events.Skipped:
			continue // the API server was not asked
		case r.Status == events.Absent:
		case r.Status != events.Answered:
			a.Failure, a.Lacking = r.Message, r.Lacks()
		default:
			if err := reconcile.ReadObject(r, "Scale", &has); err != nil {
				a.Failure = err.Error()
				break
			}
			a.UID, a.Replicas = has.UID, has.Spec.Replicas
		}
		said[a.Note.UID] = a
	}
	return said
}
