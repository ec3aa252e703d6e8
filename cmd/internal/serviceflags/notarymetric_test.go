package serviceflags

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestTheMetricSaysWhatIsNotSigned: its labels are stream, kind and controller, for comparison with
// the metrics of stored messages.
func TestTheMetricSaysWhatIsNotSigned(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(signedMetric{func() map[string]time.Time {
		return map[string]time.Time{"EV_deployments_apps": time.Now().Add(-400 * time.Second), "OUTCOME_job-controller": time.Now()}
	}})
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v (%v)", families, err)
	}
	want := map[string]float64{`kind="deployments.apps" stream="EV_deployments_apps"`: 400, `controller="job-controller" stream="OUTCOME_job-controller"`: 0}
	for _, m := range families[0].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			if l.GetValue() != "" {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
		}
		name := strings.Join(labels, " ")
		if seconds, is := want[name]; !is || m.GetGauge().GetValue() < seconds || m.GetGauge().GetValue() > seconds+60 {
			t.Errorf("%s is %v", name, m.GetGauge().GetValue())
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("nothing of %v", want)
	}
}
