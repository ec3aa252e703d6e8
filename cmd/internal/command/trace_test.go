package command

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/busflags"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	scaledTrace = "0af7651916cd43dd8448eb211c80319c"
	lostTrace   = "0af7651916cd43dd8448eb211c80319d"
)

// guarded is a bus that lets no client in without a name, and its address for the user that
// may only read.
func guarded(t *testing.T) (b *stream.Bus, reader string) {
	t.Helper()
	for _, user := range embedded.Users {
		t.Setenv(embedded.PasswordOf(user), "word-of-"+user)
	}
	port, err := localcluster.FreePort()
	ok(t, err)
	server, flags := busflags.NewServer(), pflag.NewFlagSet("", pflag.ContinueOnError)
	server.Add(flags)
	server.AddCluster(flags)
	ok(t, flags.Parse([]string{
		"--data-dir=" + t.TempDir(), "--sync-interval=1m", fmt.Sprintf("--nats-listen=127.0.0.1:%d", port), "--nats-accounts=" + filepath.Join(deployments, "nats", "accounts.conf"),
	}))
	running, err := server.Start()
	ok(t, err)
	t.Cleanup(func() { _ = running.Close() })
	o := busflags.New()
	o.Connection.URL = "nats://millrace:word-of-millrace@" + server.Listen
	b, err = o.Open(t.Context(), "test", nil)
	ok(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b, "nats://reader:word-of-reader@" + server.Listen
}

// recorded is the address of a bus with the changes of some deployments on record.
func recorded(t *testing.T) (reader string) {
	t.Helper()
	b, reader := guarded(t)
	kind := kinds.Kind{Name: "deployments.apps", Kind: "Deployment", Version: "v1", Namespaced: true}
	if err := b.EnsureKind(t.Context(), kind); err != nil {
		t.Fatal(err)
	}
	log, err := b.Append(t.Context(), kind.Name)
	if err != nil {
		t.Fatal(err)
	}
	traced := func(id, flags string) events.Trace {
		return events.Trace{Parent: "00-" + id + "-b7ad6b7169203331-" + flags}
	}
	for _, d := range []events.Delta{
		{Ref: events.Ref{Name: "web"}, ResourceVersion: "1", Trace: traced(lostTrace, "01")},
		{Ref: events.Ref{Name: "web"}, ResourceVersion: "2", Trace: traced(scaledTrace, "01")},
		{Ref: events.Ref{Name: "web"}, ResourceVersion: "2", Sync: true}, // said again
		{Ref: events.Ref{Name: "unsampled"}, ResourceVersion: "3", Trace: traced(scaledTrace, "00")},
		{Ref: events.Ref{Name: "untraced"}, ResourceVersion: "4"},
		{Ref: events.Ref{Name: "kept"}, ResourceVersion: "5", Sync: true},
	} {
		d.Kind, d.Ref.Kind, d.Ref.Namespace, d.Op, d.UID, d.At = kind.Name, kind.Name, "shop", events.Is, "u-1", time.Now()
		if err := log.Append(t.Context(), subject.Message(d)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return reader
}

// jaegerOfOne is a Jaeger that has one trace.
func jaegerOfOne(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v3/traces/"+scaledTrace {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":{"httpCode":404,"message":"No traces found"}}`))
			return
		}
		fmt.Fprintf(w, `{"result":{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"millrace-watcher"}}]},
			"scopeSpans":[{"spans":[{"traceId":%q,"spanId":"b7ad6b7169203331","name":"send EV_deployments.apps",
			"startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1700000000001000000"}]}]}]}}`, scaledTrace)
	}))
	t.Cleanup(server.Close)
	return server
}

// TestTrace: the command finds and draws the trace of the newest change, and has a separate
// error, with what to do, for each thing that may be missing.
func TestTrace(t *testing.T) {
	bus, jaeger := recorded(t), jaegerOfOne(t).URL
	for _, c := range []struct {
		args string
		want []string // of the output, or of the error
	}{
		{"deploy/web", []string{"deployments.apps:shop/web at version 2", "send EV_deployments.apps", scaledTrace}},
		{"deployment web --rv=2 -o json", []string{`"traceID": "` + scaledTrace + `"`, `"service": "millrace-watcher"`}},
		{"deploy/web --rv=1", []string{"no span of deployments.apps:shop/web version 1", jaeger}},
		{"deploy/web --rv=9", []string{"no version 9", "millrace history"}},
		{"deploy/unsampled", []string{"was not traced", "millrace why"}},
		{"deploy/untraced", []string{"was not traced"}},
		{"deploy/kept", []string{"no change of deployments.apps:shop/kept"}},
		{"deploy/absent", []string{"deployments.apps:shop/absent is not on record"}},
		{"deploy/web --jaeger=http://127.0.0.1:1", []string{"no Jaeger answers", "--jaeger"}},
		{"deploy/web --jaeger=nonsense", []string{"read --jaeger"}},
		{"gadget/web", []string{`no kind "gadget"`, "millrace retention lists all 1"}},
	} {
		said := traceSays(t, append([]string{"--nats-url=" + bus, "--jaeger=" + jaeger, "-n=shop"}, strings.Fields(c.args)...))
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("trace %s does not say %q:\n%s", c.args, want, said)
			}
		}
	}
}

// traceSays is the output of the command, or its error.
func traceSays(t *testing.T, args []string) string {
	t.Helper()
	var out strings.Builder
	cmd := newTrace()
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return err.Error()
	}
	return out.String()
}

// TestPluginName: as a kubectl plug-in, the program shows and completes the command line that
// its user typed.
func TestPluginName(t *testing.T) {
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(underName(root, plugin, []string{"trace", "--help"}))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "kubectl millrace trace KIND/NAME") {
		t.Errorf("help is\n%s", out.String())
	}
	if args := underName(newRoot(), completer, []string{"tr"}); len(args) != 2 || args[0] != cobra.ShellCompRequestCmd {
		t.Errorf("completing is asked for by %q", args)
	}
	if args := underName(newRoot(), "millrace", []string{"trace"}); len(args) != 1 {
		t.Errorf("called by its own name it gets %q", args)
	}
}
