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
		if got := taint.Tolerated(red, []corev1.Toleration{{Key: "other"}, c.toleration}, false); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// Numbers are compared where the gate is on, and nothing but whole numbers.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		has, limit string
		gt, lt     bool
	}{
		{"5", "4", true, false}, {"4", "5", false, true}, {"-1", "0", false, true}, {"5", "5", false, false}, {"10", "9", true, false},
		{"x", "1", false, false}, {"1", "x", false, false}, {"", "1", false, false}, {"05", "1", false, false}, {"9223372036854775808", "1", false, false}, {"1", "+0", false, false},
	} {
		for how, want := range map[corev1.TolerationOperator]bool{corev1.TolerationOpGt: c.gt, corev1.TolerationOpLt: c.lt} {
			with := []corev1.Toleration{{Key: "n", Operator: how, Value: c.limit}}
			if got := taint.Tolerated(corev1.Taint{Key: "n", Value: c.has, Effect: away}, with, true); got != want {
				t.Errorf("%s %s %s is %v", c.has, how, c.limit, got)
			}
			if taint.Tolerated(corev1.Taint{Key: "n", Value: c.has, Effect: away}, with, false) {
				t.Errorf("%s %s %s counts without the gate", c.has, how, c.limit)
			}
		}
	}
}

func TestRepels(t *testing.T) {
	taints := []corev1.Taint{{Key: "a", Effect: shut}, {Key: "b", Effect: away}}
	a := []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	if !taint.Repels(taints, a, false, shut, away) || taint.Repels(taints, a, false, shut) || taint.Repels(taints, nil, false, maybe) || taint.Repels(nil, nil, false, shut) {
		t.Error("repelled is a pod that does not tolerate a taint of the effects that count, and no other")
	}
}
