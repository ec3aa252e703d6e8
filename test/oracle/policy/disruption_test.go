package policy_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/policy"
)

func TestBudgetsEndAsUpstreamsDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		world := budgetWorld(r)
		diff, err := world.Compare(t)
		if err != nil {
			r.Fatalf("%v\n%s", err, oracletest.Page(r, world.World))
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) end differently:\n%s\nscales %v\n%s", diff, world.Scales, oracletest.Page(r, world.World))
		}
	})
}

// budgetWorld has one or two budgets, and pods of various owners.
func budgetWorld(t *rapid.T) policy.Budgets {
	b := policy.Budgets{Scales: map[string]policy.Scale{}}
	for i := range rapid.IntRange(1, 2).Draw(t, "budgets") {
		b.World = append(b.World, anyBudget(t, fmt.Sprint("budget-", i)))
	}
	b.World = append(b.World, owners(t)...)
	if rapid.IntRange(0, 4).Draw(t, "the foo is there") > 0 {
		b.Scales["foo"] = policy.Scale{
			UID:      rapid.SampledFrom([]types.UID{"uid-foo", "uid-foo", "uid-foo", "another"}).Draw(t, "which foo"),
			Replicas: int32(rapid.IntRange(0, 4).Draw(t, "of the foo")),
		}
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		b.World = append(b.World, anyGuarded(t, fmt.Sprint("pod-", i)))
	}
	return b
}

func anyBudget(t *rapid.T, name string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Generation: 2},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: rapid.SampledFrom([]*metav1.LabelSelector{
			{MatchLabels: map[string]string{"app": "web"}}, {MatchLabels: map[string]string{"app": "web"}}, {}, nil,
		}).Draw(t, "selector")},
	}
	number := rapid.SampledFrom([]intstr.IntOrString{
		intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromString("0%"), intstr.FromString("34%"), intstr.FromString("50%"), intstr.FromString("100%"),
	}).Draw(t, "number")
	switch rapid.IntRange(0, 6).Draw(t, "which") {
	case 0:
	case 1, 2, 3:
		b.Spec.MaxUnavailable = &number
	default:
		b.Spec.MinAvailable = &number
	}
	if rapid.Bool().Draw(t, "said before") {
		small := func(what string) int32 { return int32(rapid.IntRange(0, 3).Draw(t, what)) }
		b.Status = policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: int64(rapid.IntRange(1, 2).Draw(t, "observed")), DisruptionsAllowed: small("allowed"),
			CurrentHealthy: small("healthy"), DesiredHealthy: small("desired"), ExpectedPods: small("expected"),
		}
		b.Status.Conditions = []metav1.Condition{{
			Type: policyv1.DisruptionAllowedCondition, LastTransitionTime: oracletest.Before(objects.Now, 600), ObservedGeneration: b.Status.ObservedGeneration,
			Status: rapid.SampledFrom([]metav1.ConditionStatus{"True", "False"}).Draw(t, "condition"),
			Reason: rapid.SampledFrom([]string{policyv1.SufficientPodsReason, policyv1.InsufficientPodsReason, policyv1.SyncFailedReason}).Draw(t, "because"),
		}}
	}
	for i := range 6 {
		if rapid.IntRange(0, 5).Draw(t, "evicted") == 0 {
			if b.Status.DisruptedPods == nil {
				b.Status.DisruptedPods = map[string]metav1.Time{}
			}
			b.Status.DisruptedPods[fmt.Sprint("pod-", i)] = oracletest.Before(objects.Now, rapid.SampledFrom([]int{5, 60, 130, 600}).Draw(t, "evicted ago"))
		}
	}
	return b
}

// owners are the existing owners of the pods.
func owners(t *rapid.T) (world []runtime.Object) {
	size := func(of string) *int32 { n := int32(rapid.IntRange(0, 5).Draw(t, "size of "+of)); return &n }
	there := func(what string) bool { return rapid.IntRange(0, 5).Draw(t, what+" is there") > 0 }
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"}
	}
	above := &appsv1.Deployment{ObjectMeta: meta("above"), Spec: appsv1.DeploymentSpec{Replicas: size("above")}}
	if there("above") {
		world = append(world, above)
	}
	for _, name := range []string{"new", "old", "alone"} {
		rs := &appsv1.ReplicaSet{ObjectMeta: meta(name), Spec: appsv1.ReplicaSetSpec{Replicas: size(name)}}
		if name != "alone" {
			rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(above, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		}
		if there(name) {
			world = append(world, rs)
		}
	}
	if there("set") {
		world = append(world, &appsv1.StatefulSet{ObjectMeta: meta("set"), Spec: appsv1.StatefulSetSpec{Replicas: size("set")}})
	}
	if there("rc") {
		world = append(world, &corev1.ReplicationController{ObjectMeta: meta("rc"), Spec: corev1.ReplicationControllerSpec{Replicas: size("rc")}})
	}
	return world
}

var guardians = []metav1.OwnerReference{
	{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "new"}, {APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "old"},
	{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "alone"}, {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "set"},
	{APIVersion: "v1", Kind: "ReplicationController", Name: "rc"}, {APIVersion: "example.com/v1", Kind: "Foo", Name: "foo"},
}

func anyGuarded(t *rapid.T, name string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Generation: 3,
			Labels: map[string]string{"app": rapid.SampledFrom([]string{"web", "web", "web", "db"}).Draw(t, "app")},
		},
		Spec:   corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: rapid.SampledFrom([]corev1.PodPhase{"Running", "Running", "Running", "Pending", "Failed"}).Draw(t, "phase")},
	}
	odd := rapid.IntRange(0, 15).Draw(t, "whose")
	switch {
	case odd == 0: // without an owner
	case odd == 1:
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: rapid.SampledFrom([]string{"Bar", "Baz"}).Draw(t, "odd"), Name: "x", UID: "uid-x", Controller: oracletest.Ptr(true)}}
	default:
		ref := rapid.SampledFrom(guardians).Draw(t, "owner")
		ref.UID, ref.Controller = types.UID("uid-"+ref.Name), oracletest.Ptr(true)
		if rapid.IntRange(0, 9).Draw(t, "namesake") == 0 {
			ref.UID = "uid-before"
		}
		p.OwnerReferences = []metav1.OwnerReference{ref}
	}
	if rapid.IntRange(0, 3).Draw(t, "ready") > 0 {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}
	if rapid.IntRange(0, 2).Draw(t, "disrupted") == 0 {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "True", "False"}).Draw(t, "so"), Message: "m",
			Reason:             rapid.SampledFrom([]string{corev1.PodReasonPreemptionByScheduler, corev1.PodReasonTerminationByKubelet}).Draw(t, "by"),
			LastTransitionTime: oracletest.Before(objects.Now, rapid.SampledFrom([]int{10, 60, 130}).Draw(t, "disrupted ago")),
		})
	}
	if rapid.IntRange(0, 5).Draw(t, "leaving") == 0 {
		p.DeletionTimestamp = oracletest.Ptr(oracletest.Before(objects.Now, 1))
		p.Finalizers = []string{"example.com/held"}
	}
	return p
}
