package nodes_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/test/oracle/nodes"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestTaintsDrivePodsAwayAsUpstreamsDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		w := nodes.Taints{
			Node:  &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1", ResourceVersion: "1"}},
			After: rapid.IntRange(0, 30).Draw(r, "after"),
			Gates: oracletest.AnyGates(r, gate.TaintTolerationComparisonOperators),
		}
		w.Node.Spec.Taints, w.Then = anyTaints(r, "taints"), anyTaints(r, "then")
		for i := range rapid.IntRange(1, 4).Draw(r, "pods") {
			name := fmt.Sprint("pod-", i)
			w.Pods = append(w.Pods, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
				Spec:       corev1.PodSpec{NodeName: "n1", Tolerations: rapid.SliceOfN(rapid.Custom(anyToleration), 0, 3).Draw(r, "tolerations")},
			})
		}
		if diff := w.Compare(t); diff != "" {
			r.Fatalf("upstream (-) and we (+) delete other pods, or at other times:\n%s%v, after %d s %v", diff, w.Node.Spec.Taints, w.After, w.Then)
		}
	})
}

func anyTaints(t *rapid.T, what string) (taints []corev1.Taint) {
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(t, what) {
		effect := rapid.SampledFrom([]corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule}).Draw(t, "effect")
		taints = append(taints, corev1.Taint{Key: key, Value: rapid.SampledFrom([]string{"", "x", "5", "-7", "010"}).Draw(t, "value"), Effect: effect})
	}
	return taints
}

func anyToleration(t *rapid.T) corev1.Toleration {
	by := corev1.Toleration{
		Key:      rapid.SampledFrom([]string{"a", "a", "b", "c", ""}).Draw(t, "key"),
		Operator: rapid.SampledFrom([]corev1.TolerationOperator{corev1.TolerationOpExists, corev1.TolerationOpExists, corev1.TolerationOpEqual, "", corev1.TolerationOpGt, corev1.TolerationOpLt}).Draw(t, "operator"),
		Effect:   rapid.SampledFrom([]corev1.TaintEffect{"", corev1.TaintEffectNoExecute}).Draw(t, "for"),
	}
	if by.Operator == corev1.TolerationOpGt || by.Operator == corev1.TolerationOpLt {
		by.Value = rapid.SampledFrom([]string{"4", "5", "-8", "x"}).Draw(t, "number")
	}
	if by.Key == "" {
		by.Operator, by.Value = corev1.TolerationOpExists, ""
	}
	if rapid.IntRange(0, 3).Draw(t, "limited") > 0 {
		seconds := rapid.Int64Range(-1, 25).Draw(t, "seconds")
		by.TolerationSeconds = &seconds
	}
	return by
}
