package workloads_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

func TestPodsAreEndedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, workloads.PodGC, oracletest.Key, lostPodWorld)
}

func TestTooManyEndedPodsGoAsUpstreams(t *testing.T) {
	oracletest.Agree(t, workloads.EndedPods, events.Key{Name: "finished"}, endedPodsWorld)
}

// lostPodWorld is a pod, and its node or another one.
func lostPodWorld(t *rapid.T) []runtime.Object {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "pod", ResourceVersion: "10", Generation: 2}}
	p.Spec.NodeName = rapid.SampledFrom([]string{"", "n1", "n1", "gone"}).Draw(t, "node")
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Succeeded", "Failed"}).Draw(t, "phase")
	if rapid.Bool().Draw(t, "deleted") {
		p.DeletionTimestamp, p.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "when")), []string{"x"}
		p.DeletionGracePeriodSeconds = oracletest.Ptr(rapid.SampledFrom([]int64{0, 30}).Draw(t, "grace"))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if rapid.Bool().Draw(t, "out of service") {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, "ready")}}
	return []runtime.Object{p, node}
}

// endedPodsWorld has pods with a node, most of which have ended.
func endedPodsWorld(t *rapid.T) []runtime.Object {
	var world []runtime.Object
	for i := range rapid.IntRange(1, 7).Draw(t, "pods") {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("p", rapid.IntRange(0, 9).Draw(t, "name"), "-", i), Namespace: rapid.SampledFrom([]string{oracletest.Namespace, "other"}).Draw(t, "namespace"),
			UID: types.UID(fmt.Sprint("pod", i)), ResourceVersion: "10", CreationTimestamp: oracletest.Ago(t, 14, "created"),
		}}
		p.Spec.NodeName = "n1"
		p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Unknown", "Succeeded", "Succeeded", "Failed", "Failed"}).Draw(t, "phase")
		if p.Status.Phase == corev1.PodFailed && rapid.Bool().Draw(t, "evicted") {
			p.Status.Reason = "Evicted"
		}
		world = append(world, p)
	}
	return append(world, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node"}})
}
