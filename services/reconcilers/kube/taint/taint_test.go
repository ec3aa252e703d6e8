package taint_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/kube/taint"
)

const (
	away  = corev1.TaintEffectNoExecute
	shut  = corev1.TaintEffectNoSchedule
	maybe = corev1.TaintEffectPreferNoSchedule
)

func TestTolerated(t *testing.T) {
	red := corev1.Taint{Key: "colour", Value: "red", Effect: away}
	for what, c := range map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"the same":             {corev1.Toleration{Key: "colour", Operator: corev1.TolerationOpEqual, Value: "red", Effect: away}, true},
		"no operator is equal": {corev1.Toleration{Key: "colour", Value: "red", Effect: away}, true},
		"another value":        {corev1.Toleration{Key: "colour", Value: "blue", Effect: away}, false},
		"any value":            {corev1.Toleration{Key: "colour", Operator: corev1.TolerationOpExists, Effect: away}, true},
		"another effect":       {corev1.Toleration{Key: "colour", Operator: corev1.TolerationOpExists, Effect: shut}, false},
		"any effect":           {corev1.Toleration{Key: "colour", Operator: corev1.TolerationOpExists}, true},
		"another key":          {corev1.Toleration{Key: "shape", Operator: corev1.TolerationOpExists}, false},
		"everything":           {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"a number":             {corev1.Toleration{Key: "colour", Operator: "Gt", Value: "1"}, false},
	} {
		if got := taint.Tolerated(red, []corev1.Toleration{{Key: "other"}, c.toleration}); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestRepels(t *testing.T) {
	taints := []corev1.Taint{{Key: "a", Effect: shut}, {Key: "b", Effect: away}}
	a := []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	if !taint.Repels(taints, a, shut, away) || taint.Repels(taints, a, shut) || taint.Repels(taints, nil, maybe) || taint.Repels(nil, nil, shut) {
		t.Error("repelled is who does not tolerate a taint of the effects that count, and nobody else")
	}
}
