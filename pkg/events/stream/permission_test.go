package stream_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestRefusalsAreErrorsAtOnce: what the server's permissions forbid is an error
// that says so, long before any timeout, and Healthy remembers it.
func TestRefusalsAreErrorsAtOnce(t *testing.T) {
	t.Parallel()
	url := serveUsers(t)
	connectAs := func(user string) *stream.Bus {
		return connect(t, stream.Options{URL: "nats://" + user + ":" + user + "@" + url, Timeout: 2 * streamtest.Patience})
	}
	all := connectAs("all")
	if err := errors.Join(all.EnsureKind(t.Context(), kinds.Pods.Kind), all.EnsureController(t.Context(), "c")); err != nil {
		t.Fatal(err)
	}
	key := events.Key{Name: "a"}
	turn := events.Message{Subject: subject.Turn("c", events.LaneWrite, key)}
	ctx, cancel := context.WithTimeout(t.Context(), streamtest.Patience)
	defer cancel()
	for name, try := range map[string]func(*stream.Bus) error{
		"Store":       func(b *stream.Bus) error { _, err := b.Store(ctx, turn, 0); return err },
		"Put":         func(b *stream.Bus) error { _, err := b.Put(ctx, turn, "id"); return err },
		"Schedule":    func(b *stream.Bus) error { return b.Schedule(ctx, events.Wake{Controller: "c", Key: key}) },
		"EnsureKind":  func(b *stream.Bus) error { return b.EnsureKind(ctx, kinds.Deployments.Kind) },
		"StreamState": func(b *stream.Bus) error { _, err := b.StreamState(ctx, "TURN_c"); return err },
		"Last":        func(b *stream.Bus) error { _, _, err := b.Last(ctx, "TURN_c", turn.Subject); return err },
		"Kinds":       func(b *stream.Bus) error { _, err := b.Kinds(ctx); return err },
		"Forget":      func(b *stream.Bus) error { return b.DeleteKind(ctx, kinds.Pods.Name) },
		"Follow":      func(b *stream.Bus) error { return b.Follow(ctx, "EV_pods", 0, nil) },
		"Work":        func(b *stream.Bus) error { return b.Work(ctx, bus.Work{Stream: "TURN_c", Durable: "w"}, nil) },
		"Listen":      func(b *stream.Bus) error { return b.Listen(ctx, "watcher", func([]byte) {}) },
		"Append": func(b *stream.Bus) error {
			a, err := b.Append(ctx, kinds.Pods.Name)
			if err != nil {
				return err
			}
			defer a.Close()
			return errors.Join(a.Append(ctx, podDelta("a", 1)), a.Flush(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := connectAs("none")
			if name == "Append" {
				b = connectAs("looker")
			}
			var refusal *natserr.Refusal
			if err := try(b); !errors.As(err, &refusal) {
				t.Errorf("a forbidden request: %v, want a refusal", err)
			}
			if err := b.Healthy(); !errors.As(err, &refusal) {
				t.Errorf("afterwards Healthy is: %v; want a refusal", err)
			}
		})
	}
}

// serveUsers starts a plain server with three users: one may do all, one may
// look at streams, one nothing.
func serveUsers(t *testing.T) (address string) {
	t.Helper()
	user := func(name string, publish, listen []string) *server.User {
		return &server.User{Username: name, Password: name, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: listen},
		}}
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Users: []*server.User{
			user("all", []string{">"}, []string{">"}),
			user("looker", []string{"$JS.API.STREAM.INFO.*"}, []string{"_INBOX.>"}),
			user("none", []string{"nothing"}, []string{"_INBOX.>"}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	eventually(t, "the server listens", func() bool { return s.Addr() != nil && s.ReadyForConnections(streamtest.Patience) })
	return s.Addr().String()
}

// TestAGuestThatMayNotListen is told what is missing, rather than left behind.
func TestAGuestThatMayNotListen(t *testing.T) {
	t.Parallel()
	url := serveUsers(t)
	all := connect(t, stream.Options{URL: "nats://all:all@" + url})
	if err := all.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	guest := connect(t, stream.Options{URL: "nats://looker:looker@" + url, Guest: true})
	err := guest.Follow(t.Context(), subject.LogStream("pods"), 1, nil)
	var refusal *natserr.Refusal
	if !errors.As(err, &refusal) || !strings.Contains(err.Error(), "accounts.conf") {
		t.Errorf("following ended with: %v", err)
	}
}
