package workloads

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Budgets is what users do with PodDisruptionBudgets, and with the Deployments of their pods.
var Budgets = slices.Concat(slices.Repeat([]cluster.Operation{evictSome}, 10), []cluster.Operation{
	budgetSome, budgetSome, dropBudget, disruptSome, ScaleSome, ScaleSome, ImageSome, cluster.DeletePod, cluster.FailPod,
})

// remembered is for how long an eviction counts although its pod is not deleted.
const remembered = 2 * time.Minute

var numbers = []intstr.IntOrString{intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("50%"), intstr.FromString("34%")}

// budgetSome creates a budget, or changes one.
func budgetSome(w *cluster.Cluster) {
	deployment, _ := Some(w)
	ref := budgetRef(deployment.Name)
	number, most := numbers[w.Roll(len(numbers))], w.Roll(2) == 0
	ask := func(b *policyv1.PodDisruptionBudget) {
		b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, &number
		if most {
			b.Spec.MaxUnavailable, b.Spec.MinAvailable = &number, nil
		}
	}
	w.Note("user: the budget of %s is %s, most %v", ref.Name, number.String(), most)
	if w.API.Get(ref) != nil {
		w.API.Change(ref, func(obj metav1.Object) { ask(obj.(*policyv1.PodDisruptionBudget)) })
		return
	}
	b := &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: ref.Name, Namespace: ref.Namespace},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": deployment.Name}}},
	}
	ask(b)
	w.Create(ref, b)
}

func budgetRef(name string) events.Ref {
	return events.Ref{Kind: kinds.PodDisruptionBudgets.Name, Namespace: cluster.Namespace, Name: name}
}

func dropBudget(w *cluster.Cluster) {
	if all := w.API.List(kinds.PodDisruptionBudgets.Name); len(all) > 0 {
		w.Delete(apiserver.RefOf(kinds.PodDisruptionBudgets.Name, all[w.Roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

// disruptSome marks a pod as disrupted without disrupting it.
func disruptSome(w *cluster.Cluster) {
	if pod := w.AnyPod(); pod != nil {
		w.Note("scheduler: pod %s is to be preempted, and is not", pod.GetName())
		w.API.Change(apiserver.RefOf(kinds.Pods.Name, pod), func(obj metav1.Object) {
			p := obj.(*corev1.Pod)
			was := func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }
			p.Status.Conditions = append(slices.DeleteFunc(p.Status.Conditions, was), corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
				LastTransitionTime: metav1.NewTime(w.Now.Truncate(time.Second)),
			})
		})
	}
}

// evictSome requests the eviction of a pod, as a drain does.
func evictSome(w *cluster.Cluster) {
	pod := evictable(w)
	if pod == nil {
		budgetSome(w) // there must be something to evict
		return
	}
	for _, obj := range w.API.List(kinds.PodDisruptionBudgets.Name) {
		if b := obj.(*policyv1.PodDisruptionBudget); covers(b, pod) && !w.API.Evict(b, pod) {
			w.Note("user: the eviction of %s is refused", pod.Name)
			return
		}
	}
	if w.Roll(4) == 0 {
		w.Note("user: the eviction of %s is allowed, and forgotten", pod.Name)
		return
	}
	w.Note("user: pod %s is evicted", pod.Name)
	w.API.Do(plan.Request{Verb: plan.Delete, Kind: kinds.Pods.Name, Namespace: pod.Namespace, Name: pod.Name})
}

// evictable is a running pod with a budget; nil when there is none.
func evictable(w *cluster.Cluster) *corev1.Pod {
	var all []*corev1.Pod
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		budgets := w.API.List(kinds.PodDisruptionBudgets.Name)
		if cluster.Active(pod) && slices.ContainsFunc(budgets, func(b metav1.Object) bool { return covers(b.(*policyv1.PodDisruptionBudget), pod) }) {
			all = append(all, pod)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.Roll(len(all))]
}

func covers(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// Spends checks a write of a budget's status: it must not forget the eviction of a pod that the
// view had in its current version and that is not being deleted (I5). The eviction would count
// twice: once as allowed again, and once when the pod is deleted.
func Spends(g *cluster.Guard, c *cluster.Taken, r plan.Request) {
	if r.Kind != kinds.PodDisruptionBudgets.Name || r.Verb != plan.Update {
		return
	}
	var next policyv1.PodDisruptionBudget
	now, ok := g.World.API.Get(budgetRef(r.Name)).(*policyv1.PodDisruptionBudget)
	if json.Unmarshal(r.Body, &next) != nil || !ok || next.ResourceVersion != now.ResourceVersion {
		return // the API server will refuse it
	}
	log := g.Record.Logs[kinds.Pods.Name]
	for name, since := range now.Status.DisruptedPods {
		_, kept := next.Status.DisruptedPods[name]
		pod, there := g.World.API.Get(events.Ref{Kind: kinds.Pods.Name, Namespace: now.Namespace, Name: name}).(*corev1.Pod)
		if kept || !there || pod.DeletionTimestamp != nil || !covers(now, pod) || c.Turn.Now.Add(g.World.Settings.Skew).Sub(since.Time) >= remembered {
			continue
		}
		ref := events.Ref{Kind: kinds.Pods.Name, Namespace: now.Namespace, Name: name}
		if at, said := log.Tells(ref, pod.ResourceVersion); said && at <= c.Turn.Seen[kinds.Pods.Name] {
			g.Breaks("I5", "turn %d forgets that %s was allowed to be evicted from %s", c.Sequence, name, r.Name)
		}
	}
}

// Budgeted reports whether every budget says what is so.
func Budgeted(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.PodDisruptionBudgets.Name) {
		b := obj.(*policyv1.PodDisruptionBudget)
		want := askedOf(b, w.API.List, w.API.Get)
		got := policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: b.Status.ObservedGeneration, DisruptionsAllowed: b.Status.DisruptionsAllowed,
			CurrentHealthy: b.Status.CurrentHealthy, DesiredHealthy: b.Status.DesiredHealthy, ExpectedPods: b.Status.ExpectedPods,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("the budget %s says %+v, and %+v is so", b.Name, got, want)
		}
		if len(b.Status.DisruptedPods) > 0 {
			return fmt.Errorf("the budget %s still counts on the evictions %v", b.Name, b.Status.DisruptedPods)
		}
	}
	for _, obj := range w.API.List(kinds.Pods.Name) {
		for _, c := range obj.(*corev1.Pod).Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && cluster.Active(obj.(*corev1.Pod)) && w.Runs("disruption-controller") {
				return fmt.Errorf("pod %s still says that it is disrupted", obj.GetName())
			}
		}
	}
	return nil
}

// BudgetJudged judges the status of a budget: it allows no more evictions than the view has
// healthy pods beyond the required number. A pod whose eviction was allowed is not healthy.
func BudgetJudged(l *cluster.Look, f cluster.Findings) {
	b, ok := l.Own.(*policyv1.PodDisruptionBudget)
	for _, c := range l.Reports {
		var next policyv1.PodDisruptionBudget
		if !ok || c.Kind != kinds.PodDisruptionBudgets.Name || c.Subresource != "status" || json.Unmarshal(c.Body, &next) != nil {
			continue
		}
		healthy := int32(0)
		for _, obj := range l.List(kinds.Pods.Name) {
			pod := obj.(*corev1.Pod)
			_, evicted := next.Status.DisruptedPods[pod.Name]
			if covers(b, pod) && cluster.Ready(pod) && pod.DeletionTimestamp == nil && !evicted {
				healthy++
			}
		}
		must := askedOf(b, l.List, l.Get).DesiredHealthy
		if allowed := next.Status.DisruptionsAllowed; allowed > max(0, healthy-must) {
			f.Breaks("I5", "allows %d evictions; %d pods are healthy and %d must be", allowed, healthy, must)
		}
	}
}

// askedOf is the right status of a budget for the pods of one Deployment.
func askedOf(b *policyv1.PodDisruptionBudget, list func(kinds.Name) []metav1.Object, get func(events.Ref) metav1.Object) policyv1.PodDisruptionBudgetStatus {
	want := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation}
	pods, owners := 0, map[types.UID]int32{}
	for _, obj := range list(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if !covers(b, pod) {
			continue
		}
		pods++
		if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == "True" }) {
			want.CurrentHealthy++
		}
		set, ok := get(events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: pod.Namespace, Name: cluster.OwnerOf(pod)}).(*appsv1.ReplicaSet)
		if !ok {
			continue
		}
		owners[set.UID] = *set.Spec.Replicas
		if d, ok := get(DeploymentRef(cluster.OwnerOf(set))).(*appsv1.Deployment); ok {
			delete(owners, set.UID)
			owners[d.UID] = *d.Spec.Replicas
		}
	}
	expected := 0
	for _, n := range owners {
		expected += int(n)
	}
	number := b.Spec.MinAvailable
	switch {
	case b.Spec.MaxUnavailable != nil:
		most, _ := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, expected, true)
		want.DesiredHealthy = int32(max(0, expected-most))
	case number.Type == intstr.Int:
		expected, want.DesiredHealthy = pods, number.IntVal
	default:
		least, _ := intstr.GetScaledValueFromIntOrPercent(number, expected, true)
		want.DesiredHealthy = int32(least)
	}
	if want.ExpectedPods = int32(expected); expected > 0 {
		want.DisruptionsAllowed = max(0, want.CurrentHealthy-want.DesiredHealthy)
	}
	return want
}
