package horizontalpodautoscaler

import (
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"github.com/millrace/millrace/pkg/events"
)

// noted returns the memory with its times limited to the decision that wrote them.
func (m Memory) noted(told events.Outcome) Memory {
	m.Recommended, m.Added, m.Removed = noted(m.Recommended, told), noted(m.Added, told), noted(m.Removed, told)
	return m
}

func noted(counts []Count, told events.Outcome) []Count {
	counts = slices.Clone(counts)
	for i := range counts {
		counts[i].At = told.Noted(counts[i].At)
	}
	return counts
}

// recommend adds a recommendation and drops those that cannot matter any more: older than
// any window, or followed by one at least as high and one at least as low.
func (d *Verdict) recommend(replicas int32, window time.Duration, now time.Time) {
	kept := []Count{{replicas, now}}
	high, low := replicas, replicas
	for _, r := range slices.Backward(d.Memory.Recommended) {
		if r.At.Before(now.Add(-window)) || low <= r.Replicas && r.Replicas <= high {
			continue
		}
		high, low = max(high, r.Replicas), min(low, r.Replicas)
		kept = append(kept, r)
	}
	slices.Reverse(kept)
	d.Memory.Recommended = kept
}

// remember records a change of the scale, if policies limit changes. It drops changes
// older than the longest period.
//
// Upstream: storeScaleEvent.
func (d *Verdict) remember(b *autoscalingv2.HorizontalPodAutoscalerBehavior, from, to int32, now time.Time) {
	if b == nil {
		return
	}
	grow, shrink := Config{}.rules(b)
	longest := time.Duration(0)
	for _, p := range slices.Concat(grow.policies, shrink.policies) {
		longest = max(longest, time.Duration(p.PeriodSeconds)*time.Second)
	}
	old := func(c Count) bool { return c.At.Before(now.Add(-longest)) }
	d.Memory.Added = slices.DeleteFunc(slices.Clone(d.Memory.Added), old)
	d.Memory.Removed = slices.DeleteFunc(slices.Clone(d.Memory.Removed), old)
	if to > from {
		d.Memory.Added = append(d.Memory.Added, Count{to - from, now})
	} else {
		d.Memory.Removed = append(d.Memory.Removed, Count{from - to, now})
	}
}

// sum returns how many replicas were added or removed after since.
func sum(changes []Count, since time.Time) (n int32) {
	for _, c := range changes {
		if c.At.After(since) {
			n += c.Replicas
		}
	}
	return n
}
