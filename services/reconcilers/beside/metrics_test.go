package beside

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// docs/metrics.md has every metric, marked with a star, because most installations have no shadow.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	must(t, err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(newMetrics([]reconcile.Any{copies}).collectors()...)
	families, err := registry.Gather()
	must(t, err)
	for _, f := range families {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		row := fmt.Sprintf("| `%s` * | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, " "), f.GetHelp())
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/metrics.md lacks %s", row)
		}
	}
	if len(families) != 7 {
		t.Errorf("there are %d metrics", len(families))
	}
}

// The lag is measured from the oldest waiting message. Wants that are not done yet, findings and stored turns
// are counted.
func TestWhatIsMeasured(t *testing.T) {
	x, _, _ := onAiling(t, copies)
	m, now := x.service.metrics, time.Now()
	x.measure(now)
	if lag := testutil.ToFloat64(m.lag); lag != 0 {
		t.Errorf("when nothing waits the lag is %v s, want 0", lag)
	}
	x.order.push(message(kinds.ConfigMaps.Kind, 1, 5, now.Add(-3*time.Second)))
	x.order.push(message(kinds.ServiceAccounts.Kind, 1, 6, now.Add(-time.Second)))
	want := []shadow.Want{{Verb: events.VerbDelete, Ref: events.Ref{Kind: "serviceaccounts", Namespace: "web", Name: "copy"}, UID: "u"}}
	x.engines[0].matcher.Decided(shadow.Answer{Key: events.Key{Name: "web"}, Wants: want, At: now})
	x.measure(now)
	if lag, open := testutil.ToFloat64(m.lag), testutil.ToFloat64(m.open.WithLabelValues(copies.Name)); lag != 3 || open != 1 {
		t.Errorf("the lag is %v s and %v effects are open, want 3 and 1", lag, open)
	}
	must(t, x.tell(t.Context(), x.engines[0], []shadow.Found{{Finding: report.Finding{Controller: copies.Name, Agreement: report.Agreed}}}))
	if found := testutil.ToFloat64(m.findings.WithLabelValues(copies.Name, string(report.Agreed))); found != 1 {
		t.Errorf("%v findings are counted", found)
	}
	known := seen(t, copies, "web")
	must(t, known.ask(t.Context(), known.engines[0], events.Key{Name: "web"}, events.Trigger{}))
	if turns := testutil.ToFloat64(known.service.metrics.turns.WithLabelValues(copies.Name)); turns != 1 {
		t.Errorf("%v turns are counted", turns)
	}
	known.service.first = func(string) bool { return false }
	known.engines[0].matcher = shadow.New(known.engines[0].described, shadow.Settings{})
	must(t, known.ask(t.Context(), known.engines[0], events.Key{Name: "web"}, events.Trigger{}))
	if turns := testutil.ToFloat64(known.service.metrics.turns.WithLabelValues(copies.Name)); turns != 1 {
		t.Errorf("%v turns are counted, with those of another replica", turns)
	}
}
