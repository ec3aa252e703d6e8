package stream_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

const accounts = "../../../deployments/nats/accounts.conf"

// givePasswords gives every user a password, once for all tests: they run in parallel, and
// share the environment of the process.
func givePasswords() error {
	var failed error
	for _, user := range embedded.Users {
		failed = errors.Join(failed, os.Setenv(embedded.PasswordOf(user), "word-of-"+user))
	}
	return failed
}

// as is the address of a server for a user.
func as(user, address string) string {
	return "nats://" + user + ":word-of-" + user + "@" + strings.TrimPrefix(address, "nats://")
}

// TestAccounts: a stock server with the accounts in deployments/nats behaves like the server in
// this process with them, and like one with a guest's password.
func TestAccounts(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*testing.T) string{
		"a stock server": stock,
		"the server in this process": func(t *testing.T) string {
			return serve(t, embedded.Options{Listen: "127.0.0.1:0", Accounts: accounts}).URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := serve(t)
			b := connect(t, stream.Options{URL: as("millrace", address)})
			recorded(t, b)
			compareReaders(t, b, guest(t, as(embedded.GuestUser, address)))
			expectPrompt(t, b, guest(t, as(embedded.GuestUser, address)))
			expectPowerless(t, b, as(embedded.GuestUser, address))
			for _, unknown := range []string{"", "watcher:guess@", "millrace@"} {
				if _, err := nats.Connect("nats://" + unknown + strings.TrimPrefix(address, "nats://")); err == nil {
					t.Errorf("%q is let in", unknown)
				}
			}
			expectShadow(t, b, as(stream.ShadowUser, address))
		})
	}
}

// stock is a server as others run it, without Millrace.
func stock(t *testing.T) (address string) {
	t.Helper()
	return stockOf(t, 0)
}

// stockOf is one whose store has a size, and that takes large messages.
func stockOf(t *testing.T, store int64) (address string) {
	t.Helper()
	options, err := server.ProcessConfigFile(accounts)
	if err != nil {
		t.Fatal(err)
	}
	options.Host, options.Port, options.JetStream, options.StoreDir, options.NoLog, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir(), true, true
	options.JetStreamMaxStore, options.MaxPayload = store, 8<<20
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	eventually(t, "the server listens", func() bool { return s.ReadyForConnections(streamtest.Patience) })
	return s.Addr().String()
}

// provide runs a provisioner on a bus with accounts, until the test ends.
func provide(t *testing.T, address string) *stream.Bus {
	t.Helper()
	return provideWith(t, stream.Options{URL: as("provisioner", address)})
}

func provideWith(t *testing.T, o stream.Options) *stream.Bus {
	t.Helper()
	b := connect(t, o)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Provide(ctx, measured) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestEachServiceSaysItsOwn: each service may publish its own stored messages and no other's,
// and only the watcher may have streams of kinds deleted.
func TestEachServiceSaysItsOwn(t *testing.T) {
	t.Parallel()
	address := serve(t, embedded.Options{Listen: "127.0.0.1:0", Accounts: accounts}).URL()
	provide(t, address)
	watcher := connect(t, stream.Options{URL: as("watcher", address)})
	decider := connect(t, stream.Options{URL: as("reconcilers", address)})
	notary := connect(t, stream.Options{URL: as("notary", address)})
	if err := errors.Join(watcher.EnsureKind(t.Context(), kinds.Pods.Kind), watcher.EnsureShadow(t.Context(), "c"), decider.EnsureController(t.Context(), "c"), notary.EnsureNotary(t.Context(), 0)); err != nil {
		t.Fatal(err)
	}
	key := events.Key{Namespace: "shop", Name: "web"}
	own := map[string][]string{
		"watcher":     {subject.Delta(podRef("a")), subject.WatcherStatusSubject},
		"reconcilers": {subject.Turn("c", events.LaneWrite, key), subject.Schedule("c", key), subject.Finding("c", key), subject.StatusSubject},
		"writer":      {subject.Outcome("c", events.LaneWrite, key)},
		"notary":      {subject.Notary("EV_pods")},
	}
	for user := range own {
		b := connect(t, stream.Options{URL: as(user, address)})
		for owner, subjects := range own {
			for _, on := range subjects {
				_, err := b.Put(t.Context(), events.Message{Subject: on, Data: []byte("{}")}, user+on)
				var refusal *natserr.Refusal
				if refused := errors.As(err, &refusal); refused == (user == owner) || user == owner && err != nil {
					t.Errorf("the %s says something on %s: %v", user, on, err)
				}
			}
		}
		var refusal *natserr.Refusal
		if err := b.DeleteKind(t.Context(), "none"); errors.As(err, &refusal) == (user == "watcher") {
			t.Errorf("the %s takes streams away: %v", user, err)
		}
	}
}

// TestAccountsKeepTheirStreams: a server with accounts finds its streams again, and reports
// what is wrong with a file without such accounts.
func TestAccountsKeepTheirStreams(t *testing.T) {
	t.Parallel()
	options := embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Accounts: accounts}
	for round := range 2 {
		s, err := embedded.Serve(options)
		if err != nil {
			t.Fatal(err)
		}
		b := connect(t, stream.Options{URL: as("millrace", s.URL())})
		if round == 0 {
			recorded(t, b)
		}
		at, err := b.StreamState(t.Context(), subject.LogStream("pods"))
		if err != nil || at.Last != 300 {
			t.Errorf("start %d: the log of pods ends at %d: %v", round, at.Last, err)
		}
		if err := errors.Join(b.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(t.TempDir(), "other.conf")
	if err := os.WriteFile(other, []byte("accounts { A { users: [{user: a, password: a}] } }"), 0o600); err != nil {
		t.Fatal(err)
	}
	options.GuestPassword = "look"
	both := options
	options.GuestPassword, options.Accounts = "", other
	missing := options
	missing.Accounts = filepath.Join(t.TempDir(), "absent.conf")
	for says, wrong := range map[string]embedded.Options{"no account MILLRACE": options, "say who reads": both, "absent.conf": missing} {
		if _, err := embedded.Serve(wrong); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error with %q: %v", says, err)
		}
	}
}
