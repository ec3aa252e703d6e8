package stream_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// accountsOf writes the accounts for some controllers, with the passwords of [givePasswords].
func accountsOf(t *testing.T, f access.File) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "accounts.conf")
	if err := os.WriteFile(file, []byte(f.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// shop is a bus with accounts and a provisioner, for the controllers of the matrix.
func shop(t *testing.T) (address string) {
	t.Helper()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0", Accounts: accountsOf(t, access.New(measured))})
	provide(t, s.URL())
	return s.URL()
}

// TestServicesWorkUnderAccounts: a delta, the turn that is decided on it and its outcome
// go from service to service, each with its own rights and streams that it did not make;
// wakes fire, many subjects are looked up at once, and no service is refused anything.
func TestServicesWorkUnderAccounts(t *testing.T) {
	t.Parallel()
	address := shop(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	as := func(user string) *stream.Bus { return connect(t, stream.Options{URL: as(user, address)}) }
	watcher, decider, writer, notary := as("watcher"), as("reconcilers"), as("writer"), as("notary")
	must(watcher.EnsureKind(ctx, kinds.Pods.Kind))
	must(decider.EnsureController(ctx, "c"))
	must(writer.EnsureController(ctx, "d"))
	must(notary.EnsureNotary(ctx, time.Hour))
	must(watcher.EnsureShadow(ctx, "c"))
	_, err := publish(ctx, watcher, 0, 50)
	must(err)
	read := make(chan error, 1)
	go func() {
		n := 0
		read <- decider.Follow(ctx, subject.LogStream("pods"), 1, func(batch []events.Message) error {
			if n += len(batch); n >= 60 {
				return errRead
			}
			return nil
		})
	}()
	_, err = publish(ctx, watcher, 50, 10)
	must(err)
	if err := <-read; !errors.Is(err, errRead) {
		t.Errorf("the reconcilers follow pods: %v", err)
	}
	key := events.Key{Namespace: "shop", Name: "web"}
	_, err = decider.Store(ctx, events.Message{Subject: subject.Turn("c", events.LaneWrite, key), Data: []byte("{}")}, 0)
	must(err)
	worked(t, writer, bus.Work{Stream: subject.TurnStream("c"), Durable: "writer", Since: time.Minute})
	_, err = writer.Put(ctx, events.Message{Subject: subject.Outcome("c", events.LaneWrite, key), Data: []byte("{}")}, "one")
	must(err)
	must(decider.Schedule(ctx, events.Wake{Controller: "c", Key: key, At: time.Now()}))
	consumed(t, decider, subject.OutcomeStream("c"), 1)
	consumed(t, decider, subject.WakeStream, 1)
	consumed(t, decider, subject.LogStream("pods"), 60)
	found, err := decider.LastOf(ctx, subject.OutcomeStream("c"), []string{subject.Outcome("c", events.LaneWrite, key), subject.Outcome("c", events.LaneWrite, events.Key{Name: "none"})})
	if err != nil || len(found) != 1 {
		t.Errorf("of two outcomes %d are found: %v, want the one that exists", len(found), err)
	}
	if page := passageOf(t, notary, bus.Passage{Stream: subject.LogStream("pods")}); len(page) != 60 {
		t.Errorf("the notary reads %d deltas", len(page))
	}
	must(watcher.DeleteKind(ctx, kinds.Pods.Name))
	if _, err := watcher.StreamState(ctx, subject.LogStream("pods")); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("a kind that was forgotten: %v", err)
	}
	for user, b := range map[string]*stream.Bus{"watcher": watcher, "reconcilers": decider, "writer": writer, "notary": notary} {
		if err := b.Healthy(); err != nil {
			t.Errorf("the %s: %v", user, err)
		}
	}
}

// TestWhatAnEarlierVersionMadeIsRemovedUnderAccounts, by the provisioner, which the watcher has no
// other reason to ask.
func TestWhatAnEarlierVersionMadeIsRemovedUnderAccounts(t *testing.T) {
	t.Parallel()
	address := shop(t)
	watcher, js := connect(t, stream.Options{URL: as("watcher", address)}), admin(t, as("millrace", address))
	if err := watcher.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	if _, err := publish(t.Context(), watcher, 0, 5); err != nil {
		t.Fatal(err)
	}
	formerState(t, js)
	if err := watcher.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	expectLogAlone(t, js, watcher)
}

// consumed reads so many messages, acknowledges them, and finds that it has.
func consumed(t *testing.T, b *stream.Bus, from string, messages int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), streamtest.Patience)
	defer stop()
	var last atomic.Uint64
	err := b.Consume(ctx, from, 1, last.Load, func(batch []events.Message) error {
		if last.Store(batch[len(batch)-1].Sequence); last.Load() >= uint64(messages) {
			stop()
		}
		return nil
	})
	if err != nil || last.Load() < uint64(messages) {
		t.Errorf("%s is read up to %d of %d: %v", from, last.Load(), messages, err)
	}
	eventually(t, "what was read of "+from+" is acknowledged", func() bool {
		dealt, ok, err := b.Acknowledged(t.Context(), from)
		return err == nil && ok && dealt == last.Load()
	})
}

// worked takes one delivery.
func worked(t *testing.T, b *stream.Bus, w bus.Work) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), streamtest.Patience)
	defer stop()
	done := false
	err := b.Work(ctx, w, func(d bus.Delivery) { d.Ack(); done = true; stop() })
	if err != nil || !done {
		t.Errorf("work on %s as %s: %t, %v", w.Stream, w.Durable, done, err)
	}
}

// TestPeersHearWhoMayTellThem: what is said between services arrives across accounts, and
// what another service says in their name does not.
func TestPeersHearWhoMayTellThem(t *testing.T) {
	t.Parallel()
	address := shop(t)
	speakers := []string{"watcher", "reconcilers", "writer"}
	for topic, p := range map[string]struct{ from, to []string }{
		"watchers": {[]string{"watcher"}, []string{"watcher"}}, "epoch": {[]string{"watcher"}, []string{"watcher", "writer"}},
		"damage": {[]string{"reconcilers"}, []string{"watcher"}}, "writers": {[]string{"writer"}, []string{"writer", "reconcilers"}},
		"writes": {[]string{"writer"}, []string{"watcher"}}, "heard.host.example.com-1": {[]string{"watcher"}, []string{"writer"}},
		"reconcilers": {[]string{"reconcilers"}, []string{"reconcilers"}}, "shadows.1f": {[]string{"reconcilers"}, []string{"reconcilers"}},
	} {
		for _, listener := range p.to {
			ears := connect(t, stream.Options{URL: as(listener, address)})
			heard := make(chan string, 64)
			go func() { _ = ears.Listen(t.Context(), topic, func(data []byte) { heard <- string(data) }) }()
			for _, speaker := range p.from {
				mouth := connect(t, stream.Options{URL: as(speaker, address)})
				eventually(t, listener+" hears "+speaker+" on "+topic, func() bool {
					if err := mouth.Broadcast(topic, []byte(speaker)); err != nil {
						t.Fatal(err)
					}
					select {
					case who := <-heard:
						return who == speaker
					case <-time.After(10 * time.Millisecond):
						return false
					}
				})
			}
			for _, speaker := range speakers {
				if slices.Contains(p.from, speaker) || topic == "epoch" && speaker == "writer" { // writers share it among themselves
					continue
				}
				mouth := connect(t, stream.Options{URL: as(speaker, address)})
				if err := mouth.Broadcast(topic, []byte("forged")); err != nil {
					t.Fatal(err)
				}
				var refusal *natserr.Refusal
				eventually(t, speaker+" is refused "+topic, func() bool { return errors.As(mouth.Healthy(), &refusal) })
			}
			for len(heard) > 0 {
				if who := <-heard; who == "forged" {
					t.Errorf("the %s hears a forged word on %s", listener, topic)
				}
			}
		}
	}
}

// TestOrdersAreChecked: the provisioner makes what services have, and no more.
func TestOrdersAreChecked(t *testing.T) {
	t.Parallel()
	address := shop(t)
	watcher, decider, writer := connect(t, stream.Options{URL: as("watcher", address)}), connect(t, stream.Options{URL: as("reconcilers", address)}), connect(t, stream.Options{URL: as("writer", address)})
	workloads := connect(t, stream.Options{URL: as(access.WriterWorkloads, address)})
	if err := errors.Join(decider.EnsureController(t.Context(), "c"), watcher.EnsureKind(t.Context(), kinds.Pods.Kind)); err != nil {
		t.Fatal(err)
	}
	work := func(b *stream.Bus, stream, durable string) func() error {
		return func() error {
			ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer stop()
			if err := b.Work(ctx, bus.Work{Stream: stream, Durable: durable}, func(bus.Delivery) {}); err != nil {
				return err
			}
			all, err := connect(t, streamOptions(address)).Consumers(t.Context(), stream)
			for _, c := range all {
				if c.Name == durable {
					return err
				}
			}
			return errors.Join(errors.New("no such consumer was made"), err)
		}
	}
	odd := kinds.Pods.Kind
	odd.Name = "pods_x"
	long := kinds.Pods.Kind
	long.Name = kinds.Name(strings.Repeat("a", 254))
	shapeless := kinds.Kind{Name: "widgets.example.com", Version: "v1", Kind: "Widget", Form: "picture"}
	for what, try := range map[string]func() error{
		"an unknown controller":                             func() error { return decider.EnsureController(t.Context(), "unheard-of") },
		"a kind whose name no kind has":                     func() error { return watcher.EnsureKind(t.Context(), odd) },
		"a kind with a long name":                           func() error { return watcher.EnsureKind(t.Context(), long) },
		"a kind in an unknown form":                         func() error { return watcher.EnsureKind(t.Context(), shapeless) },
		"a shadow of nothing":                               func() error { return watcher.EnsureShadow(t.Context(), "unheard-of") },
		"the reconcilers at the turns":                      work(decider, "TURN_c", "writer"),
		"a writer at the outcomes":                          work(writer, "OUTCOME_c", "writer"),
		"the watcher at the turns":                          work(watcher, "TURN_c", "writer"),
		"a writer of workloads at the turns of a collector": work(workloads, "TURN_namespace-controller", "writer"),
		"a writer of workloads, a collector's streams":      func() error { return workloads.EnsureController(t.Context(), "namespace-controller") },
		"the reconcilers at the outcomes":                   work(decider, "OUTCOME_c", "c"),
		"a watcher that acknowledges": func() error {
			ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer stop()
			err := watcher.Consume(ctx, "EV_pods", 1, func() uint64 { return 0 }, func([]events.Message) error { return nil })
			if _, ok, _ := connect(t, streamOptions(address)).Acknowledged(t.Context(), "EV_pods"); !ok {
				return errors.New("no such consumer was made")
			}
			return err
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s: the provisioner has made it", what)
		}
	}
}

// TestSplitWritersCarryOutTheirShare: a writer of a share carries out the turns of its
// controllers, and says nothing of those of another share.
func TestSplitWritersCarryOutTheirShare(t *testing.T) {
	t.Parallel()
	address := shop(t)
	decider := connect(t, stream.Options{URL: as("reconcilers", address)})
	key := events.Key{Namespace: "shop", Name: "web"}
	for user, controller := range map[string]string{access.WriterWorkloads: "c", access.WriterCollectors: "namespace-controller"} {
		b := connect(t, stream.Options{URL: as(user, address)})
		if err := b.EnsureController(t.Context(), controller); err != nil {
			t.Fatal(err)
		}
		if _, err := decider.Store(t.Context(), events.Message{Subject: subject.Turn(controller, events.LaneWrite, key), Data: []byte("{}")}, 0); err != nil {
			t.Fatal(err)
		}
		worked(t, b, bus.Work{Stream: subject.TurnStream(controller), Durable: "writer", Since: time.Minute})
		for _, other := range []string{"c", "namespace-controller"} {
			_, err := b.Put(t.Context(), events.Message{Subject: subject.Outcome(other, events.LaneWrite, key), Data: []byte("{}")}, user)
			var refusal *natserr.Refusal
			if errors.As(err, &refusal) == (other == controller) || other == controller && err != nil {
				t.Errorf("the %s says what became of a turn of %s: %v", user, other, err)
			}
		}
	}
}

func streamOptions(address string) stream.Options {
	return stream.Options{URL: as("millrace", address)}
}

// TestNoProvisioner: existing streams keep working, a service that needs a new one gets an
// error that says what to do, and gets its stream as soon as there is a provisioner.
func TestNoProvisioner(t *testing.T) {
	t.Parallel()
	address := serve(t, embedded.Options{Listen: "127.0.0.1:0", Accounts: accountsOf(t, access.New([]string{"c", "d"}))}).URL()
	all := connect(t, stream.Options{URL: as("millrace", address)}) // as an older version made them
	if err := errors.Join(all.EnsureKind(t.Context(), kinds.Pods.Kind), all.EnsureController(t.Context(), "c")); err != nil {
		t.Fatal(err)
	}
	watcher := connect(t, stream.Options{URL: as("watcher", address)})
	if err := watcher.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Errorf("streams that are there: %v", err)
	}
	if _, err := publish(t.Context(), watcher, 0, 3); err != nil || watcher.Healthy() != nil {
		t.Errorf("the log goes on: %v, %v", err, watcher.Healthy())
	}
	made := make(chan error, 1)
	go func() { made <- watcher.EnsureKind(t.Context(), kinds.Deployments.Kind) }()
	eventually(t, "readiness says that there is no provisioner", func() bool {
		err := watcher.Healthy()
		return errors.Is(err, natserr.ErrNoProvisioner) && strings.Contains(err.Error(), "start millrace provisioner")
	})
	provide(t, address)
	if err := <-made; err != nil || watcher.Healthy() != nil {
		t.Errorf("with a provisioner the streams are created with %v, and the bus is healthy: %v; want no error", err, watcher.Healthy())
	}
}

// TestProvidedForAnother: a service that ordered a stream before there was a provisioner, and
// finds it because another service has had it created, is healthy without another order.
func TestProvidedForAnother(t *testing.T) {
	t.Parallel()
	address := serve(t, embedded.Options{Listen: "127.0.0.1:0", Accounts: accountsOf(t, access.New([]string{"c"}))}).URL()
	first, second := connect(t, stream.Options{URL: as("reconcilers", address)}), connect(t, stream.Options{URL: as("writer", address)})
	eventually(t, "the second service knows that there is no provisioner", func() bool {
		asked, ended := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer ended()
		if err := second.EnsureController(asked, "c"); err == nil {
			t.Fatal("EnsureController succeeds without a provisioner")
		}
		return errors.Is(second.Healthy(), natserr.ErrNoProvisioner)
	})
	provide(t, address)
	if err := errors.Join(first.EnsureController(t.Context(), "c"), second.EnsureController(t.Context(), "c")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second service is healthy", func() bool { return second.Healthy() == nil })
}

// TestTwoThatStartTogether: each finds no consumer and has it made; the second gets that of
// the first, and the provisioner has nothing to complain of.
func TestTwoThatStartTogether(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0", Accounts: accountsOf(t, access.New([]string{"c", "d"}))})
	var told syncBuffer
	provideWith(t, stream.Options{URL: as("provisioner", s.URL()), Log: slog.New(slog.NewTextHandler(&told, nil))})
	r := connect(t, stream.Options{URL: as("reconcilers", s.URL())})
	for _, controller := range []string{"c", "d"} {
		if err := r.EnsureController(t.Context(), controller); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), streamtest.Patience)
		defer stop()
		got, starting := make(chan struct{}, 16), make(chan struct{})
		var all sync.WaitGroup
		for range 12 {
			b := connect(t, stream.Options{URL: as("writer", s.URL())})
			all.Go(func() {
				<-starting
				job := bus.Work{Stream: subject.TurnStream(controller), Durable: "writer", Since: time.Minute}
				if err := b.Work(ctx, job, func(d bus.Delivery) { d.Ack(); got <- struct{}{} }); err != nil {
					t.Error(err)
				}
			})
		}
		close(starting)
		turn := events.Message{Subject: subject.Turn(controller, events.LaneWrite, events.Key{Name: "web"}), Data: []byte("{}")}
		if _, err := r.Store(ctx, turn, 0); err != nil {
			t.Fatal(err)
		}
		select {
		case <-got:
		case <-ctx.Done():
			t.Fatal("no turn is delivered")
		}
		stop()
		all.Wait()
	}
	if text := told.String(); strings.Contains(text, "cannot carry out a provisioning request") {
		t.Errorf("the provisioner complains:\n%s", text)
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
