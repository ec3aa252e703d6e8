package observability

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/tools/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // what the services have, too
)

// seldom are metrics of client-go that a run shows only after a rare event: a lost response, or a garbage
// collection of a cached transport. The function triggers each event and reads the metrics from client-go
// itself.
func seldom(t *testing.T) map[string]family {
	t.Helper()
	metrics.RequestRetry.IncrementRetry(context.Background(), "429", http.MethodGet, "localhost")
	metrics.TransportCacheGCCalls.Increment("deleted")
	metrics.TransportCAReloads.Increment("success", "")
	metrics.ExecPluginCalls.Increment(0, "no_error")
	scrape := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	all, err := parse(bytes.NewReader(scrape.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]family{}
	for _, name := range []string{
		"rest_client_request_retries_total", "rest_client_transport_cache_gc_calls_total",
		"rest_client_transport_ca_reload_total", "rest_client_exec_plugin_call_total",
	} {
		f, ok := all[name]
		if !ok {
			t.Fatalf("client-go tells of no %s any more", name)
		}
		found[name] = f
	}
	return found
}
