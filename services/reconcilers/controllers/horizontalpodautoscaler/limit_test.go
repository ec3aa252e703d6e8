package horizontalpodautoscaler

import (
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
)

// Pods go once none of the recommendations in a window was higher, and come once none was
// lower. Without a behavior what was recommended at the very begin of the window counts, and
// with one it does not.
//
// Upstream: stabilizeRecommendation and stabilizeRecommendationWithBehaviors.
func TestWhatWasRecommendedHoldsBack(t *testing.T) {
	rules := func(seconds int32) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To(seconds)}
	}
	behaves := func(up, down *autoscalingv2.HPAScalingRules) *autoscalingv2.HorizontalPodAutoscalerBehavior {
		return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: up, ScaleDown: down}
	}
	const window = 5 * time.Minute // without rules
	for name, c := range map[string]struct {
		behavior        *autoscalingv2.HorizontalPodAutoscalerBehavior
		current, wanted int32
		before          int32
		age             time.Duration
		want            int32
	}{
		"more lately":                         {nil, 10, 3, 8, 2 * time.Minute, 8},
		"more at the begin of the window":     {nil, 10, 3, 8, window, 8},
		"more before the window":              {nil, 10, 3, 8, window + 1, 3},
		"fewer lately":                        {nil, 10, 3, 2, time.Minute, 3},
		"fewer lately, and now more":          {nil, 5, 9, 2, time.Second, 9},
		"no rules, more lately":               {behaves(nil, nil), 10, 3, 8, 2 * time.Minute, 8},
		"no rules, at the begin":              {behaves(nil, nil), 10, 3, 8, window, 3},
		"no rules, fewer lately":              {behaves(nil, nil), 5, 9, 2, time.Second, 9},
		"a window, more lately":               {behaves(nil, rules(60)), 10, 3, 8, 59 * time.Second, 8},
		"a window, at its begin":              {behaves(nil, rules(60)), 10, 3, 8, time.Minute, 3},
		"a longer window":                     {behaves(nil, rules(900)), 10, 3, 8, 14 * time.Minute, 8},
		"no window":                           {behaves(nil, rules(0)), 10, 3, 8, time.Second, 3},
		"a window to grow, fewer lately":      {behaves(rules(60), nil), 5, 9, 6, 59 * time.Second, 6},
		"a window to grow, at its begin":      {behaves(rules(60), nil), 5, 9, 6, time.Minute, 9},
		"a window to grow, far fewer lately":  {behaves(rules(60), nil), 5, 9, 2, time.Second, 5},
		"a window to shrink, far more lately": {behaves(nil, rules(60)), 5, 3, 9, time.Second, 5},
	} {
		h := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 20, Behavior: c.behavior}}
		d := &Verdict{Scale: events.Scale{Replicas: c.current}, Memory: Memory{Recommended: []Count{{c.before, now.Add(-c.age)}}}}
		config := Config{Stabilization: window}
		decide := config.normalize
		if c.behavior != nil {
			decide = config.behave
		}
		if got := decide(h, d, c.wanted, 1, now); got != c.want {
			t.Errorf("%s: from %d to %d where %d are wanted, want %d", name, c.current, got, c.wanted, c.want)
		}
	}
}
