package sim_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/controllers/horizontalpodautoscaler"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim"
)

// The worlds of autoscalers are worth something only if they notice what is wrong with one.
func TestItBitesAutoscalers(t *testing.T) {
	for name, tc := range map[string]struct {
		shape, rule string
		wrong       func(*horizontalpodautoscaler.View)
	}{
		"it forgets what it did": {"autoscalers, calm", "A2", func(v *horizontalpodautoscaler.View) {
			v.Memory.Added, v.Memory.Removed = nil, nil
		}},
		"it goes beyond its bounds": {"autoscalers, calm", "A1", func(v *horizontalpodautoscaler.View) {
			v.Autoscaler = v.Autoscaler.DeepCopy()
			v.Autoscaler.Spec.MaxReplicas++
		}},
		"it judges an answer again": {"autoscalers", "A3", func(v *horizontalpodautoscaler.View) {
			if v.Tried != nil && v.Tried.Version != "" {
				v.Verdict.To++
			}
		}},
		"it never does enough": {"autoscalers, calm", "I1", func(v *horizontalpodautoscaler.View) {
			if v.Readings != nil && len(v.Readings.Metrics) > 0 {
				v.Readings.Metrics[0].Failure = "it does not listen"
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := horizontalpodautoscaler.New(autoscaling)
			observe := broken.Observe
			broken.Observe = func(s reconcile.Snapshot, k events.Key) (horizontalpodautoscaler.View, bool) {
				v, ok := observe(s, k)
				if ok {
					tc.wrong(&v)
				}
				return v, ok
			}
			for s := uint64(1); s <= 300; s++ {
				options := shapes[tc.shape].options
				options.Seed, options.Mute = s, true
				if err := sim.New(options, append(workloads(), broken)).Run(); err != nil && strings.Contains(err.Error(), tc.rule) {
					t.Logf("world %d noticed: %.300v", s, err)
					return
				}
			}
			t.Error("300 worlds noticed nothing")
		})
	}
}
