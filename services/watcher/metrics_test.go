package watcher

import (
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// A watcher has the metrics of its kinds, of the watchers that it hears, and of causes.
func TestWhichMetricsThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, _ := idle(t, memory.New(memory.Options{}), tracedBy(tracetest.New()))
		registry := prometheus.NewRegistry()
		for _, c := range service.Collectors() {
			if err := registry.Register(c); err != nil {
				t.Fatal(err)
			}
		}
		service.metrics.begin("pods")
		missedOf(service).WithLabelValues("pods", "late").Inc()
		for name, want := range map[string]int{
			"millrace_watcher_members": 1, "millrace_watcher_missed_causes_total": 1, "millrace_watcher_relists_total": 1, "millrace_watcher_taken_kinds": 1,
			"millrace_watcher_left_out_versions_total": 1, "millrace_watcher_active": 1,
		} {
			if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
				t.Errorf("%s has %d series, %v; want %d", name, got, err, want)
			}
		}
	})
}
