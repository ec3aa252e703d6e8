package jaeger

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
)

const scale = "0af7651916cd43dd8448eb211c80319c"

// stored answers as Jaeger does for a trace that it has.
func stored(t *testing.T) *Trace {
	t.Helper()
	body, err := os.ReadFile("testdata/scale.json")
	if err != nil {
		t.Fatal(err)
	}
	found, err := answered(t, http.StatusOK, string(body))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func answered(t *testing.T, code int, body string) (*Trace, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/base/api/v3/traces/"+scale {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	client, err := New(server.URL + "/base/")
	if err != nil {
		t.Fatal(err)
	}
	return client.Trace(t.Context(), scale)
}

func TestTraceIsATree(t *testing.T) {
	trace := stored(t)
	var names []string
	for s := range trace.All() {
		names = append(names, s.Name)
	}
	if want := []string{"send deployments.apps", "process deployments.apps", "Update", "late", "stray"}; !slices.Equal(names, want) {
		t.Errorf("spans are %q, want %q", names, want)
	}
	root := trace.Roots[0]
	if len(trace.Roots) != 2 || root.Orphan || !trace.Roots[1].Orphan {
		t.Errorf("roots are %+v", trace.Roots)
	}
	if root.Attributes["millrace.stream.sequence"] != "7" || root.Attributes["retried"] != "false" || root.Kind != "producer" ||
		root.Service != "millrace-watcher" || root.Duration != 400*time.Microsecond || root.Start.UnixNano() != 1700000000000000000 {
		t.Errorf("the first span is %+v", root)
	}
	failed := root.Find(func(s *Span) bool { return s.Failed })
	if failed == nil || failed.Message != "conflict" || failed.Name != "Update" {
		t.Errorf("what failed is %+v", failed)
	}
	if got := trace.Length(); got != 1512*time.Millisecond {
		t.Errorf("it took %v", got)
	}
}

func TestDrawing(t *testing.T) {
	var out strings.Builder
	paper, err := printer.NewPaper(&out, "never")
	if err != nil {
		t.Fatal(err)
	}
	Draw(paper, stored(t), View{})
	want := `trace 0af7651916cd43dd8448eb211c80319c, 5 spans of millrace-watcher, millrace-reconcilers, apiserver, 1.51s
SPAN                          SERVICE       AFTER   TOOK    ABOUT
send deployments.apps         watcher       0.0ms   0.4ms   follows trace 0af7651916cd43dd8448eb211c80319d
├─ process deployments.apps   reconcilers   1.0ms   2.0ms   also because of span 00000000000000a4
│  └─ Update                  apiserver     12ms    1.50s   failed: conflict
└─ late                       reconcilers   15ms    0.0ms
stray                         reconcilers   20ms    1.0ms   its parent 00000000000000ff is not in the trace
`
	if got := out.String(); got != want {
		t.Errorf("drawn is\n%s\nwant\n%s", got, want)
	}
}

func TestAnswersThatAreNoTrace(t *testing.T) {
	for _, c := range []struct {
		code int
		body string
		want string
	}{
		{http.StatusNotFound, `{"error":{"httpCode":404,"message":"trace not found"}}`, "no such trace"},
		{http.StatusNotFound, "404 page not found", "no query API of a Jaeger"},
		{http.StatusOK, "<html>", "no query API of a Jaeger"},
		{http.StatusOK, "{}", "no such trace"},
		{http.StatusBadRequest, `{"error":{"httpCode":400,"message":"malformed parameter"}}`, "malformed parameter"},
		{http.StatusOK, `{"result":{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ff","spanId":"1"}]}]}]}}`, "span of trace ff"},
	} {
		_, err := answered(t, c.code, c.body)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d %q: %v, want %q", c.code, c.body, err, c.want)
		}
		if errors.Is(err, ErrNoTrace) != (c.want == "no such trace") {
			t.Errorf("%d %q: whether there is no such trace is told wrongly by %v", c.code, c.body, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:16686", "ftp://x", "http://", "::"} {
		if _, err := New(address); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:16686") {
			t.Errorf("address %q: %v", address, err)
		}
	}
	client, err := New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Services(t.Context()); err == nil || !strings.Contains(err.Error(), "no Jaeger answers") {
		t.Errorf("no Jaeger there: %v", err)
	}
}

// TestFind: Find sends its parameters, and splits the response into traces.
func TestFind(t *testing.T) {
	since := time.Now().Add(-time.Minute)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/api/v3/traces" || q.Get("query.service_name") != "writer" || q.Get("query.operation_name") != "POST /x" ||
			q.Get("query.num_traces") != "7" || q.Get("query.start_time_min") != since.UTC().Format(time.RFC3339Nano) {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = w.Write([]byte(`{"result":{"resourceSpans":[{"scopeSpans":[{"spans":[
			{"traceId":"b","spanId":"1"},{"traceId":"a","spanId":"2"},{"traceId":"b","spanId":"3","parentSpanId":"1"}]}]}]}}`))
	}))
	t.Cleanup(server.Close)
	client, err := New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	found, err := client.Find(t.Context(), "writer", "POST /x", since, 7)
	if err != nil || len(found) != 2 || found[0].ID != "a" || len(found[1].Roots) != 1 || found[1].Roots[0].Children[0].ID != "3" {
		t.Errorf("found %+v (%v)", found, err)
	}
}
