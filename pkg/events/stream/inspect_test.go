package stream_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/stream"
)

// limited are accounts of which the one with the streams has limits, and a user who may ask
// JetStream for one thing alone.
const limited = `accounts {
  MILLRACE {
    jetstream: {max_file: 1073741824, max_streams: 40}
    users: [
      {user: millrace, password: a}
      {user: narrow, password: b, permissions: {publish: ["$JS.API.STREAM.INFO.*"], subscribe: ["_INBOX.>"]}}
    ]
  }
}
`

// plain is a server of others with a configuration.
func plain(t *testing.T, text string, jetStream bool) (address string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	options.Host, options.Port, options.JetStream, options.StoreDir, options.NoLog, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, jetStream, t.TempDir(), true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s.Addr().String()
}

// TestInspection: what a user wants to know of a bus is told, before there are streams and after.
func TestInspection(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0", Name: "one"})
	b := connect(t, stream.Options{URL: s.URL(), Monitoring: []string{monitor(t, s)}})
	before := b.Inspect(t.Context())
	if before.Silent != nil || before.StreamsExist || !before.JetStream || before.Copies != 1 || before.Servers != 1 || !before.Told.At.IsZero() || before.Encrypted || before.Inside {
		t.Errorf("before there are streams Inspect says %+v", before)
	}
	if err := b.EnsureController(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	after := b.Inspect(t.Context())
	if after.Silent != nil || !after.StreamsExist || after.Told.At.IsZero() || after.Told.Offset() != 0 || after.Payload != 8<<20 || after.Version == "" || after.Server != s.URL() {
		t.Errorf("with streams Inspect says %+v", after)
	}
	if after.AccountError != nil || after.Account.MostStored >= 0 || after.Account.Streams < 2 {
		t.Errorf("the account: %+v, %v", after.Account, after.AccountError)
	}
	if len(after.Stores) != 1 || after.Stores[0].Server != "one" || after.Stores[0].Most == 0 {
		t.Errorf("the stores: %+v", after.Stores)
	}
	if len(after.Shortcomings) == 0 {
		t.Error("one server is audit grade")
	}
	inside := connect(t, stream.Options{Server: s}).Inspect(t.Context())
	if !inside.Inside || !inside.StreamsExist || inside.AccountError != nil {
		t.Errorf("from within: %+v", inside)
	}
}

// TestInspectionOfLimits: the limits of the account are told; and a user who may not ask for them
// is refused without harm to its connection.
func TestInspectionOfLimits(t *testing.T) {
	t.Parallel()
	address := plain(t, limited, true)
	all := connect(t, stream.Options{URL: "nats://millrace:a@" + address}).Inspect(t.Context())
	if all.AccountError != nil || all.Account.MostStored != 1<<30 || all.Account.MostStreams != 40 {
		t.Errorf("the account: %+v, %v", all.Account, all.AccountError)
	}
	b := connect(t, stream.Options{URL: "nats://narrow:b@" + address})
	began := time.Now()
	some := b.Inspect(t.Context())
	if some.Silent != nil || some.AccountError == nil || !strings.Contains(some.AccountError.Error(), "may not ask") {
		t.Errorf("a user who may not ask: %+v", some)
	}
	if err := b.Healthy(); err != nil {
		t.Errorf("the refusal harmed the connection: %v (%v)", err, time.Since(began))
	}
	for _, user := range []string{"watcher", "reader", "provisioner"} {
		if s := connect(t, stream.Options{URL: as(user, stock(t))}).Inspect(t.Context()); s.AccountError == nil || s.Silent != nil {
			t.Errorf("the user %s: %+v", user, s)
		}
	}
}

// TestInspectionOfASilentBus: a server without JetStream is told from one that does not answer.
func TestInspectionOfASilentBus(t *testing.T) {
	t.Parallel()
	b := connect(t, stream.Options{URL: "nats://" + plain(t, "", false)})
	ctx, done := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer done()
	if s := b.Inspect(ctx); s.JetStream || s.Silent == nil || len(s.Shortcomings) > 0 {
		t.Errorf("without JetStream Inspect says %+v, want that it is silent", s)
	}
}

// TestInspectionOfACluster: every server of a cluster is counted, whichever of them are named.
func TestInspectionOfACluster(t *testing.T) {
	t.Parallel()
	c := serveCluster(t)
	for _, urls := range []string{c.urls(), strings.Split(c.urls(), ",")[0], strings.Replace(strings.Split(c.urls(), ",")[0], "127.0.0.1", "localhost", 1)} {
		b := connect(t, stream.Options{URL: urls, Replicas: 3})
		eventually(t, "the servers of "+urls+" are counted", func() bool { return b.Inspect(t.Context()).Servers == 3 })
	}
}
