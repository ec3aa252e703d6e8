package horizontalpodautoscaler

import (
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events/query"
)

// Replicas are removed once no recommendation in a window was higher, and added once none
// was lower. A recommendation at the very beginning of the window counts without a
// behavior, and does not with one.
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
		d := &Verdict{Scale: query.Scale{Replicas: c.current}, Memory: Memory{Recommended: []Count{{c.before, now.Add(-c.age)}}}}
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

// The maximum change of replicas at once, and the condition that reports it.
//
// Upstream: convertDesiredReplicasWithRules and convertDesiredReplicasWithBehaviorRate.
func TestHowFastReplicasChange(t *testing.T) {
	policies := func(choose autoscalingv2.ScalingPolicySelect, all ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{SelectPolicy: &choose, Policies: all, StabilizationWindowSeconds: new(int32)}
	}
	pods := func(n, seconds int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: seconds}
	}
	percent := func(n, seconds int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: n, PeriodSeconds: seconds}
	}
	up := func(r *autoscalingv2.HPAScalingRules) *autoscalingv2.HorizontalPodAutoscalerBehavior {
		return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: r}
	}
	down := func(r *autoscalingv2.HPAScalingRules) *autoscalingv2.HorizontalPodAutoscalerBehavior {
		return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: r}
	}
	no := &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32)}}
	for name, c := range map[string]struct {
		behavior              *autoscalingv2.HorizontalPodAutoscalerBehavior
		current, wanted, most int32
		added, removed        []Count
		want                  int32
		limited               string
	}{
		"twice as many":                         {nil, 10, 30, 50, nil, nil, 20, "ScaleUpLimit"},
		"as many as may be":                     {nil, 10, 30, 20, nil, nil, 20, "TooManyReplicas"},
		"of one four":                           {nil, 1, 9, 50, nil, nil, 4, "ScaleUpLimit"},
		"fewer than there must be":              {nil, 10, 1, 50, nil, nil, 2, "TooFewReplicas"},
		"as they are wanted":                    {nil, 10, 3, 50, nil, nil, 3, "DesiredWithinRange"},
		"no rules, twice as many":               {no, 10, 30, 50, nil, nil, 20, "ScaleUpLimit"},
		"no rules, four more":                   {no, 2, 30, 50, nil, nil, 6, "ScaleUpLimit"},
		"no rules, as many as may be":           {no, 10, 30, 20, nil, nil, 20, "TooManyReplicas"},
		"no rules, some came a moment ago":      {no, 10, 30, 50, []Count{{5, now.Add(-14 * time.Second)}}, nil, 10, "ScaleUpLimit"},
		"no rules, some came before":            {no, 10, 30, 50, []Count{{5, now.Add(-15 * time.Second)}}, nil, 20, "ScaleUpLimit"},
		"no rules, all go":                      {no, 10, 1, 50, nil, nil, 2, "TooFewReplicas"},
		"no rules, some go":                     {no, 10, 3, 50, nil, nil, 3, "DesiredWithinRange"},
		"by pods":                               {up(policies("Max", pods(3, 60))), 10, 30, 50, nil, nil, 13, "ScaleUpLimit"},
		"by a part":                             {up(policies("Max", percent(25, 60))), 10, 30, 50, nil, nil, 13, "ScaleUpLimit"},
		"by the larger":                         {up(policies("Max", pods(3, 60), percent(50, 60))), 10, 30, 50, nil, nil, 15, "ScaleUpLimit"},
		"by the smaller":                        {up(policies("Min", pods(3, 60), percent(50, 60))), 10, 30, 50, nil, nil, 13, "ScaleUpLimit"},
		"not at all":                            {up(policies("Disabled", pods(3, 60))), 10, 30, 50, nil, nil, 10, "ScaleUpLimit"},
		"as far as some came lately":            {up(policies("Max", pods(3, 60))), 10, 30, 50, []Count{{2, now.Add(-59 * time.Second)}}, nil, 11, "ScaleUpLimit"},
		"as far as some went lately":            {up(policies("Max", pods(3, 60))), 10, 30, 50, nil, []Count{{2, now.Add(-time.Second)}}, 15, "ScaleUpLimit"},
		"more than is allowed came":             {up(policies("Max", pods(3, 60))), 10, 30, 50, []Count{{9, now.Add(-time.Second)}}, nil, 10, "ScaleUpLimit"},
		"as many as are allowed":                {up(policies("Max", pods(3, 60))), 10, 13, 50, nil, nil, 13, "DesiredWithinRange"},
		"as many as are allowed, and as may be": {up(policies("Max", pods(3, 60))), 10, 30, 13, nil, nil, 13, "TooManyReplicas"},
		"fewer by pods":                         {down(policies("Max", pods(3, 60))), 10, 1, 50, nil, nil, 7, "ScaleDownLimit"},
		"fewer by a part":                       {down(policies("Max", percent(25, 60))), 10, 1, 50, nil, nil, 7, "ScaleDownLimit"},
		"fewer by the larger":                   {down(policies("Max", pods(3, 60), percent(50, 60))), 10, 1, 50, nil, nil, 5, "ScaleDownLimit"},
		"fewer by the smaller":                  {down(policies("Min", pods(3, 60), percent(50, 60))), 10, 1, 50, nil, nil, 7, "ScaleDownLimit"},
		"no fewer at all":                       {down(policies("Disabled", pods(3, 60))), 10, 1, 50, nil, nil, 10, "ScaleDownLimit"},
		"fewer, as some went lately":            {down(policies("Max", pods(3, 60))), 10, 1, 50, nil, []Count{{2, now.Add(-time.Second)}}, 9, "ScaleDownLimit"},
		"fewer than allowed":                    {down(policies("Max", pods(3, 60))), 10, 7, 50, nil, nil, 7, "DesiredWithinRange"},
		"fewer than there must be, by a policy": {down(policies("Max", pods(8, 60))), 10, 1, 50, nil, nil, 2, "TooFewReplicas"},
		"as many as there are":                  {down(policies("Max", pods(3, 60))), 10, 10, 50, nil, nil, 10, "DesiredWithinRange"},
	} {
		h := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: c.most, Behavior: c.behavior}}
		d := &Verdict{Scale: query.Scale{Replicas: c.current}, Memory: Memory{Added: c.added, Removed: c.removed}}
		config := Config{}.filled()
		decide := config.normalize
		if c.behavior != nil {
			decide = config.behave
		}
		got := decide(h, d, c.wanted, 2, now)
		if limited := reasonOf(d.Status, autoscalingv2.ScalingLimited); got != c.want || limited != c.limited {
			t.Errorf("%s: from %d to %d where %d are wanted (%s), want %d (%s)", name, c.current, got, c.wanted, limited, c.want, c.limited)
		}
		if c.behavior == nil {
			continue
		}
		d.remember(c.behavior, c.current, got, now)
		if grew := len(d.Memory.Added) > len(c.added); grew != (got > c.current) {
			t.Errorf("%s: the view remembers that %v were added", name, d.Memory.Added)
		}
	}
}

func reasonOf(s autoscalingv2.HorizontalPodAutoscalerStatus, kind autoscalingv2.HorizontalPodAutoscalerConditionType) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Reason
		}
	}
	return ""
}

// A condition reports what held the number of replicas back.
func TestWhatHoldsBackIsTold(t *testing.T) {
	rules := func(seconds int32) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To(seconds)}
	}
	both := &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(60), ScaleDown: rules(60)}
	for name, c := range map[string]struct {
		behavior                *autoscalingv2.HorizontalPodAutoscalerBehavior
		current, wanted, before int32
		want                    string
	}{
		"nothing":                  {nil, 5, 3, 3, "ReadyForNewScale"},
		"more lately":              {nil, 5, 3, 4, "ScaleDownStabilized"},
		"a behavior, nothing":      {both, 5, 3, 3, "ReadyForNewScale"},
		"a behavior, more lately":  {both, 5, 3, 4, "ScaleDownStabilized"},
		"a behavior, fewer lately": {both, 5, 9, 6, "ScaleUpStabilized"},
		"a behavior, just as many": {both, 5, 5, 4, "ReadyForNewScale"},
	} {
		h := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 20, Behavior: c.behavior}}
		d := &Verdict{Scale: query.Scale{Replicas: c.current}, Memory: Memory{Recommended: []Count{{c.before, now.Add(-time.Second)}}}}
		config := Config{}.filled()
		decide := config.normalize
		if c.behavior != nil {
			decide = config.behave
		}
		decide(h, d, c.wanted, 1, now)
		if got := reasonOf(d.Status, autoscalingv2.AbleToScale); got != c.want {
			t.Errorf("%s: %s is said, want %s", name, got, c.want)
		}
	}
}
