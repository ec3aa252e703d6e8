package integrity_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats.go"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
	"github.com/millrace/millrace/services/watcher"
	"github.com/millrace/millrace/services/writer"
)

// promptly bounds the delay of a controller during the flood.
const promptly = 10 * time.Second

// copiers are controllers that copy pods. A different replica ranks first for each.
var copiers = []string{"copier-a", "copier-b", "copier-c", "copier-d"}

// TestMadeUpReplicasStopNoController: while a watcher, reconcilers and a writer run, an
// attacker with the logins of the reconcilers and of the writer makes up replicas, epochs and
// claims on turns. Each controller goes on.
func TestMadeUpReplicasStopNoController(t *testing.T) {
	for name, ghost := range map[string]func(n, i int) string{
		"always the same":      func(_, i int) string { return fmt.Sprint("ghost-", i) },
		"renewed continuously": func(n, i int) string { return fmt.Sprint("ghost-", n, "-", i) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 0)
			w.secure(copiers)
			w.watchAs()
			w.decideAs()
			w.writeAs()
			w.copied("before", promptly)
			w.floodAs("reconcilers", func(n int, say func(topic, text string)) {
				for i := range 200 {
					say("reconcilers", fmt.Sprintf(`{"id":%q}`, ghost(n, i)))
				}
			})
			w.floodAs("writer", func(n int, say func(topic, text string)) {
				for i := range 200 {
					say("writers", fmt.Sprintf(`{"id":%q}`, ghost(n, i)))
					claim := report.Heartbeat{Writer: ghost(n, i), Number: uint64(n), Full: copiers, Turns: map[string][]uint64{}}
					for turn := range uint64(20) {
						claim.Turns[copiers[i%len(copiers)]] = append(claim.Turns[copiers[i%len(copiers)]], uint64(n)/10+turn)
					}
					say("writers", string(claim.Encode()))
				}
				say("epoch", fmt.Sprintf(`{"epoch":%d,"by":"mallory"}`, n+1))
			})
			longest := time.Duration(0)
			for n, began := 0, time.Now(); time.Since(began) < 20*time.Second; n++ {
				longest = max(longest, w.copied(fmt.Sprint("during-", n), promptly))
			}
			t.Logf("each controller had acted %v after it was asked to, at most", longest)
		})
	}
}

// secure opens the bus with accounts, a provisioner and signing keys.
func (w *world) secure(controllers []string) {
	w.Helper()
	for _, user := range embedded.Users {
		w.Setenv(embedded.PasswordOf(user), "word-of-"+user)
	}
	accounts := filepath.Join(w.TempDir(), "accounts.conf")
	w.must(os.WriteFile(accounts, []byte(access.New(controllers).String()), 0o600))
	var err error
	w.server, err = embedded.Serve(embedded.Options{Dir: w.store, Listen: "127.0.0.1:0", Accounts: accounts, StartTimeout: patience, StopTimeout: patience})
	w.must(err)
	w.Cleanup(func() { w.must(w.server.Close()) })
	w.keys, err = sign.Provide(w.TempDir())
	w.must(err)
	b := w.as("provisioner")
	servicetest.Run(w, "provisioner", func(ctx context.Context) error { return b.Provide(ctx, controllers) }, b)
}

// as is a connection with a service's login.
func (w *world) as(user string) *stream.Bus {
	w.Helper()
	b, err := stream.Connect(w.Context(), stream.Options{URL: w.address(user), Name: user})
	w.must(err)
	return b
}

func (w *world) address(user string) string {
	return "nats://" + user + ":word-of-" + user + "@" + strings.TrimPrefix(w.server.URL(), "nats://")
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) watchAs() (stop func()) {
	w.Helper()
	b := w.as("watcher")
	s, err := watcher.New(watcher.Config{REST: &rest.Config{Host: w.api.URL}, Bus: b, Kinds: []kinds.Kind{kinds.Pods.Kind}})
	w.must(err)
	return servicetest.Run(w, "watcher", s.Run, b)
}

func (w *world) decideAs() (stop func()) {
	w.Helper()
	b := w.as("reconcilers")
	c := reconcilers.Config{Bus: b, Settings: shell.Settings{Signatures: shell.Signatures{Sign: w.signer(w.keys.Turns), Outcomes: w.trust(w.keys.Outcomes)}}}
	for _, name := range copiers {
		c.Controllers = append(c.Controllers, copier(name))
	}
	s, err := reconcilers.New(c)
	w.must(err)
	return servicetest.Run(w, "reconcilers", s.Run, b)
}

func (w *world) writeAs() (stop func()) {
	w.Helper()
	b := w.as("writer")
	c := writer.Config{
		REST: &rest.Config{Host: w.api.URL}, Bus: b, Log: slog.New(slog.DiscardHandler),
		Sign: w.signer(w.keys.Outcomes), Turns: w.trust(w.keys.Turns), Outcomes: w.trust(w.keys.Outcomes),
	}
	for _, name := range copiers {
		c.Controllers = append(c.Controllers, writer.Profile{Name: name, Allowed: func(events.Command) bool { return true }})
	}
	s, err := writer.New(c)
	w.must(err)
	return servicetest.Run(w, "writer", s.Run, b)
}

func (w *world) signer(p sign.Pair) *sign.Signer {
	w.Helper()
	s, err := sign.SignerFile(p.Private, func(err error) { w.Error(err) })
	w.must(err)
	return s
}

func (w *world) trust(p sign.Pair) *sign.Trust {
	w.Helper()
	t, err := sign.TrustFile(p.Public, func(err error) { w.Error(err) })
	w.must(err)
	return t
}

// floodAs publishes what a service's login permits, ten times a second until the test ends.
func (w *world) floodAs(user string, round func(n int, say func(topic, text string))) {
	w.Helper()
	conn, err := nats.Connect(w.address(user))
	w.must(err)
	var ended sync.WaitGroup
	w.Cleanup(func() { ended.Wait(); conn.Close() })
	ended.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			round(n, func(topic, text string) { _ = conn.Publish("peer."+topic, []byte(text)) })
			select {
			case <-w.Context().Done():
				return
			case <-tick.C:
			}
		}
	})
}

// copied asks each controller for a copy, and waits until all copies exist.
func (w *world) copied(what string, within time.Duration) (took time.Duration) {
	w.Helper()
	began := time.Now()
	for _, c := range copiers {
		w.api.put(c+"."+what, "")
	}
	for _, c := range copiers {
		for !w.api.has(copyOf(c, what)) {
			if took = time.Since(began); took > within {
				w.Fatalf("%s has not created a copy of %s after %v", c, what, took)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return time.Since(began)
}

func copyOf(controller, what string) string { return controller + "." + what + ".copy" }

// order is the view of a copier: whether a copy is missing.
type order struct {
	name    string
	missing bool
}

// copier creates a copy of each pod, with its own name as a prefix.
func copier(name string) reconcile.Any {
	return reconcile.Controller[order]{
		Name: name, Queue: name,
		Inputs: []reconcile.Input{{Kind: kinds.Pods.Kind, Keys: func(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
			if now.None() {
				now = was
			}
			original := strings.TrimSuffix(now.GetName(), ".copy")
			if !strings.HasPrefix(original, name+".") {
				return nil
			}
			return []events.Key{{Namespace: "default", Name: original}}
		}}},
		Writes: reconcile.Writes{{Verb: events.VerbCreate, Kind: kinds.Pods.Name}},
		Observe: func(s reconcile.Snapshot, k events.Key) (order, bool) {
			_, wanted := s.Get(kinds.Pods.Name, k.Namespace, k.Name)
			_, there := s.Get(kinds.Pods.Name, k.Namespace, k.Name+".copy")
			return order{k.Name, wanted && !there}, true
		},
		Decide: func(o order, _ time.Time) reconcile.Decision {
			if !o.missing {
				return reconcile.Nothing("there")
			}
			return reconcile.Do("missing", reconcile.Create(kinds.Pods.Kind, "default", o.name+".copy", []byte(`{}`)))
		},
	}
}
