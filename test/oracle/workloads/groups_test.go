package workloads_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

func TestPodGroupsAreProtectedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, workloads.GroupProtection, oracletest.Key, groupWorld)
}

// groupWorld is a PodGroup, and pods in it, in another one, or in none.
func groupWorld(t *rapid.T) []runtime.Object {
	const guard = "scheduling.k8s.io/podgroup-protection"
	group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "group", ResourceVersion: "10", Labels: map[string]string{"a": "b"}}}
	group.Finalizers = rapid.SampledFrom([][]string{nil, {guard}, {guard}, {"x", guard, "y"}, {"x"}}).Draw(t, "finalizers")
	if len(group.Finalizers) > 0 && !oracletest.Chance(t, 4, "lives") {
		group.DeletionTimestamp = oracletest.Ptr(oracletest.Ago(t, 60, "when"))
	}
	world := []runtime.Object{group}
	for i := range rapid.IntRange(0, 3).Draw(t, "pods") {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Namespace: rapid.SampledFrom([]string{oracletest.Namespace, oracletest.Namespace, oracletest.Namespace, "elsewhere"}).Draw(t, "namespace")}}
		p.Spec.SchedulingGroup = rapid.SampledFrom([]*corev1.PodSchedulingGroup{
			nil, {}, {PodGroupName: oracletest.Ptr("other")}, {PodGroupName: oracletest.Ptr(oracletest.Owner)}, {PodGroupName: oracletest.Ptr(oracletest.Owner)},
		}).Draw(t, "group")
		p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodFailed}).Draw(t, "phase")
		if oracletest.Chance(t, 4, "leaves") {
			p.DeletionTimestamp, p.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "since")), []string{"x"}
		}
		world = append(world, p)
	}
	return world
}

func TestRefusedGroupsAreProtectedAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, workloads.GroupProtectionAtRest, groupWorld, oracletest.Updates)
}
