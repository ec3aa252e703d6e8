package health_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/cmd/internal/health"
)

func TestVerdicts(t *testing.T) {
	busDown := errors.New("no connection")
	server := health.New(
		map[string]health.Check{"loop": func() error { return nil }},
		map[string]health.Check{"bus": func() error { return busDown }, "api": func() error { return nil }},
		prometheus.NewRegistry()).Notes(map[string]health.Check{"stalled": func() error { return errors.New("since noon") }, "fine": func() error { return nil }})
	for _, tc := range []struct {
		path, body string
		code       int
	}{
		{"/livez", "ok", 200},
		{"/readyz", "[-]bus failed: no connection", 500},
		{"/healthz", "healthz check failed", 500},
		{"/readyz?exclude=bus", "ok", 200},
		{"/readyz?exclude=bus&verbose", "[+]bus excluded: ok", 200},
		{"/readyz/api", "ok", 200},
		{"/readyz/bus", "bus check failed", 500},
		{"/livez/bus", "404", 404},
		{"/readyz?exclude=bus&verbose", "[!]stalled: since noon", 200},
		{"/readyz", "[!]stalled: since noon", 500},
		{"/readyz?exclude=bus&exclude=stalled&verbose", "[+]stalled excluded: ok", 200},
		{"/readyz/stalled", "since noon", 500},
		{"/readyz/fine", "ok", 200},
		{"/livez/stalled", "404", 404},
		{"/metrics", "", 200},
		{"/debug/pprof/", "404", 404},
	} {
		t.Run(tc.path, func(t *testing.T) {
			w := httptest.NewRecorder()
			server.Handler().ServeHTTP(w, onThisMachine(tc.path))
			body, _ := io.ReadAll(w.Result().Body)
			if w.Code != tc.code || !strings.Contains(string(body), tc.body) {
				t.Errorf("got %d %q, want %d with %q", w.Code, body, tc.code, tc.body)
			}
		})
	}
}

func TestProfilingIsServedWhereItIsOn(t *testing.T) {
	server := health.New(nil, nil, prometheus.NewRegistry()).Profile()
	w := httptest.NewRecorder()
	server.Handler().ServeHTTP(w, onThisMachine("/debug/pprof/goroutine?debug=1"))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "goroutine profile") {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

// onThisMachine is a request of a program on the machine of the server.
func onThisMachine(path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:10260"+path, nil)
	r.RemoteAddr = "127.0.0.1:4000"
	return r
}

// TestMetricsAreWithheld: the named metrics, Millrace's and the libraries', and no others.
func TestMetricsAreWithheld(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, name := range []string{"loud", "quiet"} {
		registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: name}))
	}
	told := func(withheld ...string) string {
		w := httptest.NewRecorder()
		health.New(nil, nil, registry).Withholds(withheld).Handler().ServeHTTP(w, onThisMachine("/metrics"))
		return w.Body.String()
	}
	if all := told(); !strings.Contains(all, "\nloud 0") || !strings.Contains(all, "\nquiet 0") || !strings.Contains(all, "\ngo_goroutines ") {
		t.Errorf("without a word it tells\n%s", all)
	}
	if some := told("loud", "go_goroutines"); strings.Contains(some, "\nloud ") || strings.Contains(some, "\ngo_goroutines ") || !strings.Contains(some, "\nquiet 0") {
		t.Errorf("without two it tells\n%s", some)
	}
}
