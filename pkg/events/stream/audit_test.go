package stream_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
)

// TestAudit: Audit names exactly what an audit's record lacks, each with the setting that
// corrects it.
func TestAudit(t *testing.T) {
	t.Parallel()
	lazy := serve(t, embedded.Options{Listen: "127.0.0.1:0", Name: "lazy", SyncInterval: time.Minute})
	eager := serve(t, embedded.Options{Listen: "127.0.0.1:0", Name: "eager", SyncAlways: true, MaxPayload: 1 << 20})
	for _, c := range []struct {
		name    string
		options stream.Options
		want    string // reasons, in order
		say     []string
	}{
		{"a server in this process", stream.Options{Server: lazy}, "replicas sync", []string{"--stream-replicas=3", "lazy syncs every 1m0s", "--sync-interval=always"}},
		{"a server of which little can be seen", stream.Options{URL: lazy.URL()}, "replicas unseen", []string{"--nats-monitoring"}},
		{"a server that can be seen", stream.Options{URL: eager.URL(), Monitoring: []string{monitor(t, eager)}}, "replicas payload", []string{"max_payload", "1048576"}},
		{"a server that does not let itself be seen", stream.Options{URL: lazy.URL(), Monitoring: []string{"http://127.0.0.1:1", stranger(t)}},
			"replicas unseen", []string{"127.0.0.1:1", "does not answer as NATS does"}},
	} {
		b := connect(t, c.options)
		if err := b.EnsureController(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		expectShortcomings(t, c.name, b, c.want, c.say...)
	}
}

// TestAuditOfCluster: three servers that sync always are audit grade, and no longer
// when one is away.
func TestAuditOfCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.sync = true
	var monitoring []string
	for i := range c.servers {
		c.start(i)
		monitoring = append(monitoring, monitor(t, c.servers[i]))
	}
	c.await()
	b := connect(t, stream.Options{URL: c.urls(), Replicas: 3, Monitoring: monitoring})
	expectShortcomings(t, "before there are streams", b, "")
	if err := b.EnsureController(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every copy is complete", func() bool { return reasonsOf(t, b) == "" })
	expectShortcomings(t, "three servers", b, "")
	c.stop(2)
	eventually(t, "a server is missed", func() bool { return strings.Contains(reasonsOf(t, b), "servers") })
}

func reasonsOf(t *testing.T, b *stream.Bus) string {
	t.Helper()
	found, err := b.Audit(t.Context())
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, s := range found {
		all = append(all, s.Reason)
	}
	return strings.Join(all, " ")
}

// expectShortcomings waits until exactly these are found: a server that stalls for a moment
// counts as away.
func expectShortcomings(t *testing.T, name string, b *stream.Bus, want string, say ...string) {
	t.Helper()
	for deadline := time.Now().Add(streamtest.Patience); ; time.Sleep(100 * time.Millisecond) {
		wrong := shortcomings(t, name, b, want, say...)
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Error(strings.Join(wrong, "\n"))
			return
		}
	}
}

// shortcomings is what is wrong with those that are found.
func shortcomings(t *testing.T, name string, b *stream.Bus, want string, say ...string) (wrong []string) {
	t.Helper()
	found, err := b.Audit(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatalf("%s: audit the bus: %v", name, err)
	}
	var all []string
	for _, s := range found {
		all = append(all, s.String())
	}
	said := strings.Join(all, "\n")
	if got := reasonsOf(t, b); got != want {
		wrong = append(wrong, fmt.Sprintf("%s: the reasons are %q, want %q:\n%s", name, got, want, said))
	}
	if i := slices.IndexFunc(say, func(word string) bool { return !strings.Contains(said, word) }); i >= 0 {
		wrong = append(wrong, fmt.Sprintf("%s: nothing about %q in\n%s", name, say[i], said))
	}
	metric := "# HELP millrace_bus_audit_grade 1 where the bus meets a requirement of an audit, 0 where it does not, by requirement.\n# TYPE millrace_bus_audit_grade gauge\n"
	for _, reason := range []string{"clock", "payload", "replicas", "servers", "sync", "unseen", "version"} {
		value := "1"
		if slices.Contains(strings.Fields(want), reason) {
			value = "0"
		}
		metric += `millrace_bus_audit_grade{reason="` + reason + `"} ` + value + "\n"
	}
	if err := testutil.CollectAndCompare(b, strings.NewReader(metric), "millrace_bus_audit_grade"); err != nil {
		wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
	}
	return wrong
}

// monitor serves a server's monitoring endpoint.
func monitor(t *testing.T, s *embedded.Server) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, page := range s.Monitoring() {
		mux.Handle(path, page)
	}
	endpoint := httptest.NewServer(mux)
	t.Cleanup(endpoint.Close)
	return endpoint.URL
}

// stranger is a web server that is not NATS.
func stranger(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	t.Cleanup(s.Close)
	return s.URL
}
