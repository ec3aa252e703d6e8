package beside

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// docs/metrics.md has every metric, each with a star, since most have no shadow.
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
