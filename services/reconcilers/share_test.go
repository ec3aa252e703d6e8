package reconcilers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestReplicasDoNotDoTheSameWork: of the turns that replicas want to store, few are
// refused because another one was first. Where replicas merely compete, it is every
// third to every second.
func TestReplicasDoNotDoTheSameWork(t *testing.T) {
	for _, replicas := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			onEach(t, func(ctx context.Context, t *testing.T, w *world) {
				var all []replica
				for range replicas {
					all = append(all, w.start(ctx))
				}
				w.writing(ctx, t, 0)
				for _, r := range all {
					eventually(t, "healthy", r.healthy)
				}
				const rounds = 10
				began := time.Now()
				for round := range rounds {
					for n := range 4 {
						for i := range namespaces {
							w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", round*namespaces+i), fmt.Sprint("map", n))
						}
					}
					eventually(t, "every namespace has its copy", func() bool { return len(w.births()) == (round+1)*namespaces })
				}
				took := time.Since(began)
				var stored, overtaken, asked float64
				for _, r := range all {
					stored += r.sum(t, "millrace_reconcilers_turns_total", "act")
					overtaken += r.sum(t, "millrace_reconcilers_overtaken_total", "")
					asked += r.sum(t, "millrace_reconcilers_turns_total", "")
				}
				if overtaken > stored/4 {
					t.Errorf("%v turns were thrown away for %v that were stored", overtaken, stored)
				}
				t.Logf("%v for %v births: turns asked %v, stored %v, overtaken %v", took, rounds*namespaces, asked, stored, overtaken)
			})
		})
	}
}

func (r replica) healthy() bool {
	for _, check := range r.Checks() {
		if check() != nil {
			return false
		}
	}
	return true
}

// sum adds up a metric; a label value restricts it.
func (r replica) sum(t *testing.T, name, value string) (sum float64) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			match := value == ""
			for _, l := range m.Label {
				match = match || l.GetValue() == value
			}
			if match {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
