// Package disruption says of every PodDisruptionBudget how many of its pods may be
// evicted now. The API server counts that number down with every eviction that it
// allows, and writes in the status which pod it was; until that pod is seen to go,
// or two minutes have passed in which it did not, it counts as gone.
//
// How many pods there should be is known from who controls them. The kinds that are
// built in are read; of any other kind the scale is asked for, when the pods of the
// budget are others than when it was asked for last. Where it cannot be known nothing
// may be evicted.
//
// A pod that was said to be disrupted, and two minutes later still is not on its way
// out, is said not to be any more.
//
// Upstream looks at a budget when it or one of its pods changes; so it does not notice
// that a Deployment was scaled before a pod comes or goes. Here that is a reason to
// look, too. And where a pod has several budgets, upstream keeps up to date the one
// that it finds first; here all are kept, and the pod's own key tells users of it.
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

// Controller is the disruption controller. A key is a budget, or a pod that says that
// it is disrupted or that several budgets select.
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
	Tells: reconcile.Tells{
		{Kind: kinds.PodDisruptionBudgets.Kind, On: reconcile.Itself, Reasons: []string{noPods, failed, unmanaged}},
		{Kind: kinds.Pods.Kind, On: reconcile.Beside, Reasons: []string{notDeleted, multiple}},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// scale is the subresource that says how many pods an owner wants.
const scale = "scale"

// View is what one turn can see: a budget and its pods, or a pod.
type View struct {
	Budget *policyv1.PodDisruptionBudget `json:"budget,omitempty"`
	// Pods are those that the budget selects; Select is why it cannot select any.
	Pods   []*corev1.Pod `json:"pods,omitempty"`
	Select string        `json:"select,omitempty"`
	// Sizes are how many pods those want who control the pods, by the uid in the
	// pods' references. Who is of a kind that is read and was not found is not in it.
	Sizes map[types.UID]Size `json:"sizes,omitempty"`
	// Answers are what was said of the others when they were asked, by uid too.
	Answers map[types.UID]Answer `json:"answers,omitempty"`

	// Pod is one that says that it is disrupted, or that has several budgets. There is
	// no budget then.
	Pod *corev1.Pod `json:"pod,omitempty"`
	// Several are the names of the pod's budgets, where it has more than one; Told are
	// those of which users were told last.
	Several []string `json:"several,omitempty"`
	Told    []string `json:"told,omitempty"`
}

// Size is how many pods an owner wants. Of is the uid of that owner: of a
// Deployment, where the pods are controlled by its sets.
type Size struct {
	Of       types.UID `json:"of"`
	Replicas int32     `json:"replicas"`
}

// Answer is what the API server said of an owner's scale.
type Answer struct {
	// UID is whose scale it is, empty where there is none; Replicas is how many pods
	// that one wants.
	UID      types.UID `json:"uid,omitempty"`
	Replicas int32     `json:"replicas,omitempty"`
	// Failure is why it could not be said, Lacking that it cannot be: the kind has no
	// scale, or is not served.
	Failure string `json:"failure,omitempty"`
	Lacking bool   `json:"lacking,omitempty"`
	// Note is what was noted when it was asked for.
	Note Note `json:"note"`
	// At is when it was given.
	At time.Time `json:"at"`
}

// Note says who was asked about, and on what occasion.
type Note struct {
	UID types.UID `json:"uid"`
	// Occasion is the sum of the pods that the budget had.
	Occasion string `json:"occasion"`
}

// keysOfPod maps a pod to the budgets that select it, or did before, and to itself
// where it says that it is disrupted or several budgets select it.
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

// budgetsOf are the names of the budgets that select a pod, in order.
func budgetsOf(s reconcile.Snapshot, p metav1.Object) (names []string) {
	for _, b := range reconcile.List(s, kinds.PodDisruptionBudgets, p.GetNamespace()) {
		if selects(b, p) {
			names = append(names, b.Name)
		}
	}
	return names
}

// most is how many pods are told of at once when a budget comes, goes, or selects others.
const most = 50

// keysOfBudget maps a budget to itself; and where it comes, goes or selects other pods to
// those that it shares with other budgets, or did. Where they are very many the others
// are told of when they change.
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

// budgetsBeside are the budgets in the namespace of an owner that controls pods. They
// are looked at when it comes, goes or wants another number of pods.
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
	if last, ok := reconcile.LastOf(s, k, events.Tell, p); ok {
		v.Told = toldIn(last)
	}
	return v, true
}

// memory is what a report about a pod notes: of which budgets users have been told.
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

// sizes finds those who control pods and are of a kind that is read.
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

// sized is the size of an owner that controls pods: of a set that a Deployment
// controls it is the Deployment's.
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

// answers are what was said of scales the last time that they were asked for. The
// occasion in its note says for how long one counts.
func answers(s reconcile.Snapshot, k events.Key, b *policyv1.PodDisruptionBudget) map[types.UID]Answer {
	last, ok := reconcile.LastOf(s, k, events.Act, b)
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
