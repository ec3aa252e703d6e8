package horizontalpodautoscaler

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"
)

// normalize limits the wanted replicas of an autoscaler without a behavior: not below the
// recommendations of the stabilization window, and not above twice the current number, or four.
//
// Upstream: normalizeDesiredReplicas, convertDesiredReplicasWithRules.
func (c Config) normalize(h *autoscalingv2.HorizontalPodAutoscaler, d *Verdict, wanted, least int32, now time.Time) int32 {
	stable := wanted
	for _, r := range d.Memory.Recommended {
		if !r.At.Before(now.Add(-c.Stabilization)) {
			stable = max(stable, r.Replicas)
		}
	}
	d.recommend(wanted, c.Stabilization, now)
	if stable != wanted {
		d.set(autoscalingv2.AbleToScale, true, "ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation", now)
	} else {
		d.set(autoscalingv2.AbleToScale, true, "ReadyForNewScale", "recommended size matches current size", now)
	}
	most := ceil(max(2*float64(d.Scale.Replicas), 4))
	switch {
	case stable < least:
		return d.bound(least, "TooFewReplicas", "the desired replica count is less than the minimum replica count", now)
	case stable > most && h.Spec.MaxReplicas > most:
		return d.bound(most, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate", now)
	case stable > h.Spec.MaxReplicas:
		return d.bound(h.Spec.MaxReplicas, "TooManyReplicas", "the desired replica count is more than the maximum replica count", now)
	default:
		return d.unbound(stable, now)
	}
}

// bound reports that a limit applies, unbound that none does.
func (d *Verdict) bound(at int32, reason, message string, now time.Time) int32 {
	d.set(autoscalingv2.ScalingLimited, true, reason, message, now)
	return at
}

func (d *Verdict) unbound(at int32, now time.Time) int32 {
	d.set(autoscalingv2.ScalingLimited, false, "DesiredWithinRange", "the desired count is within the acceptable range", now)
	return at
}

// The API server's defaults fill in missing rules.
//
// Upstream: pkg/apis/autoscaling/v2/defaults.go.
func rulesOf(given *autoscalingv2.HPAScalingRules, window time.Duration, policies ...autoscalingv2.HPAScalingPolicy) rules {
	r := rules{window: window, choose: autoscalingv2.MaxChangePolicySelect, policies: policies}
	if given != nil {
		r.choose = ptr.Deref(given.SelectPolicy, r.choose)
		if given.StabilizationWindowSeconds != nil {
			r.window = time.Duration(*given.StabilizationWindowSeconds) * time.Second
		}
		if len(given.Policies) > 0 {
			r.policies = given.Policies
		}
	}
	return r
}

// rules are the scaling rules of one direction.
type rules struct {
	window   time.Duration
	choose   autoscalingv2.ScalingPolicySelect
	policies []autoscalingv2.HPAScalingPolicy
}

func (c Config) rules(b *autoscalingv2.HorizontalPodAutoscalerBehavior) (grow, shrink rules) {
	all := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	four := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
	return rulesOf(b.ScaleUp, 0, four, all), rulesOf(b.ScaleDown, c.Stabilization.Truncate(time.Second), all)
}

// behave limits the wanted replicas by the autoscaler's behavior.
//
// Upstream: normalizeDesiredReplicasWithBehaviors, stabilizeRecommendationWithBehaviors
// and convertDesiredReplicasWithBehaviorRate.
func (c Config) behave(h *autoscalingv2.HorizontalPodAutoscaler, d *Verdict, wanted, least int32, now time.Time) int32 {
	grow, shrink := c.rules(h.Spec.Behavior)
	current, low, high := d.Scale.Replicas, wanted, wanted
	for _, r := range d.Memory.Recommended {
		if r.At.After(now.Add(-grow.window)) {
			low = min(low, r.Replicas)
		}
		if r.At.After(now.Add(-shrink.window)) {
			high = max(high, r.Replicas)
		}
	}
	stable := min(max(current, low), high)
	d.recommend(wanted, max(grow.window, shrink.window), now)
	switch {
	case stable == wanted:
		d.set(autoscalingv2.AbleToScale, true, "ReadyForNewScale", "recommended size matches current size", now)
	case wanted >= current:
		d.set(autoscalingv2.AbleToScale, true, "ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation", now)
	default:
		d.set(autoscalingv2.AbleToScale, true, "ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation", now)
	}
	most := max(current, grow.limit(current, d.Memory, now, true))
	fewest := min(current, shrink.limit(current, d.Memory, now, false))
	switch {
	case stable > current && stable > most && h.Spec.MaxReplicas > most:
		return d.bound(most, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate", now)
	case stable > current && stable > h.Spec.MaxReplicas:
		return d.bound(h.Spec.MaxReplicas, "TooManyReplicas", "the desired replica count is more than the maximum replica count", now)
	case stable < current && stable < fewest && least < fewest:
		return d.bound(fewest, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate", now)
	case stable < current && stable < least:
		return d.bound(least, "TooFewReplicas", "the desired replica count is less than the minimum replica count", now)
	default:
		return d.unbound(stable, now)
	}
}

// limit returns the maximum (grows) or minimum number of replicas at which no period
// exceeds its policy. Of several policies the one that allows the largest change counts,
// or the smallest if the rules select that.
//
// Upstream: calculateScaleUpLimitWithScalingRules, calculateScaleDownLimitWithBehaviors.
func (r rules) limit(current int32, m Memory, now time.Time, grows bool) int32 {
	if r.choose == autoscalingv2.DisabledPolicySelect {
		return current
	}
	highest := grows == (r.choose != autoscalingv2.MinChangePolicySelect)
	limit := int32(math.MaxInt32)
	if highest {
		limit = math.MinInt32
	}
	for _, p := range r.policies {
		since := now.Add(-time.Duration(p.PeriodSeconds) * time.Second)
		start := current - sum(m.Added, since) + sum(m.Removed, since)
		allowed := allows(p, start, grows)
		if highest {
			limit = max(limit, allowed)
		} else {
			limit = min(limit, allowed)
		}
	}
	return limit
}

// allows returns the number of replicas that a policy allows, given the number at the
// start of its period. Fractions are rounded up when growing and down when shrinking.
func allows(p autoscalingv2.HPAScalingPolicy, start int32, grows bool) int32 {
	part := float64(p.Value) / 100
	switch {
	case p.Type == autoscalingv2.PodsScalingPolicy && grows:
		return start + p.Value
	case p.Type == autoscalingv2.PodsScalingPolicy:
		return start - p.Value
	case grows:
		return ceil(float64(start) * (1 + part))
	default:
		return int32(float64(start) * (1 - part))
	}
}
