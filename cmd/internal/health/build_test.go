package health_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/cmd/internal/health"
)

func scrape(t *testing.T, registry *prometheus.Registry, accept string) (kind, text string) {
	t.Helper()
	w, r := httptest.NewRecorder(), onThisMachine("/metrics")
	r.Header.Set("Accept", accept)
	health.New(nil, nil, registry).Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	return w.Header().Get("Content-Type"), w.Body.String()
}

func TestEveryProcessTellsWhatItIs(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(health.Build("v7")...)
	_, text := scrape(t, registry, "")
	for _, want := range []string{
		`(?m)^millrace_build_info\{.*version="v7"\} 1$`,
		`(?m)^kubernetes_build_info\{.*go_version="go1.*"\} 1$`,
		`(?m)^process_start_time_seconds \d`,
		`(?m)^go_gc_heap_live_bytes \d`,
		`(?m)^rest_client_transport_cache_entries \d`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("there is no %s", want)
		}
	}
}

func TestExemplarsAreServedToWhoAsksForOpenMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "slow_seconds", Buckets: []float64{1}})
	registry.MustRegister(h)
	h.(prometheus.ExemplarObserver).ObserveWithExemplar(2, prometheus.Labels{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"})
	kind, text := scrape(t, registry, "application/openmetrics-text; version=1.0.0")
	if !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.Contains(text, `# {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 2`) {
		t.Errorf("asked for OpenMetrics, got %s without the exemplar", kind)
	}
	if !strings.HasSuffix(text, "# EOF\n") {
		t.Error("what is served as OpenMetrics has no end")
	}
	if kind, text = scrape(t, registry, ""); strings.HasPrefix(kind, "application/openmetrics-text") || strings.Contains(text, "trace_id") {
		t.Errorf("not asked for OpenMetrics, got %s", kind)
	}
}
