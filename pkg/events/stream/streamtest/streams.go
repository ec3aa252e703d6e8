package streamtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

func testStreams(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	if err := b.Healthy(); err != nil {
		t.Fatalf("a new bus is not healthy: %v", err)
	}
	widgets := kinds.Kind{Name: "widgets.example.com", Version: "v1beta1", Kind: "Widget", Form: kinds.Metadata}
	k.must(b.EnsureKind(k.ctx, widgets))
	k.must(b.EnsureKind(k.ctx, kinds.Deployments.Kind))
	k.must(b.EnsureKind(k.ctx, kinds.Deployments.Kind)) // again: nothing changes
	k.must(b.EnsureController(k.ctx, controller))
	found, err := b.Kinds(k.ctx)
	k.must(err)
	if want := []kinds.Kind{kinds.Deployments.Kind, kinds.Pods.Kind, widgets}; !slices.Equal(found, want) {
		t.Errorf("kinds are %+v, want %+v", found, want)
	}
	for _, stream := range []string{
		subject.LogStream(widgets.Name),
		subject.TurnStream(controller), subject.OutcomeStream(controller), subject.WakeStream,
	} {
		s := k.state(stream)
		if s.First != 1 || s.Last != 0 || s.Messages != 0 || s.Created.IsZero() {
			t.Errorf("a new %s stands at %+v", stream, s)
		}
	}
}

func testSettings(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	k.append(k.appender(kinds.Pods.Kind), k.pod("a", 1))
	other := kinds.Pods.Kind
	other.Form = kinds.Metadata
	if err := b.EnsureKind(k.ctx, other); !errors.Is(err, bus.ErrSettings) {
		t.Fatalf("another form of a kind that is there: %v, want ErrSettings", err)
	}
	found, err := b.Kinds(k.ctx)
	k.must(err)
	if !slices.Equal(found, []kinds.Kind{kinds.Pods.Kind}) {
		t.Errorf("after ErrSettings the kinds are %+v", found)
	}
	if got := k.state(subject.LogStream("pods")).Messages; got != 1 {
		t.Errorf("after ErrSettings the log holds %d messages, want 1", got)
	}
}

func testForget(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	k.append(k.appender(kinds.Pods.Kind), k.pod("a", 1))
	k.must(b.DeleteKind(k.ctx, kinds.Pods.Name))
	k.must(b.DeleteKind(k.ctx, kinds.Pods.Name)) // it has been forgotten already
	found, err := b.Kinds(k.ctx)
	k.must(err)
	if len(found) != 0 {
		t.Errorf("after Forget there are %+v", found)
	}
	if _, err := b.StreamState(k.ctx, subject.LogStream("pods")); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("the log after Forget: %v, want ErrNoStream", err)
	}
	k.must(b.EnsureKind(k.ctx, kinds.Pods.Kind))
	if s := k.state(subject.LogStream("pods")); s.Last != 0 {
		t.Errorf("a log that was made anew stands at %+v", s)
	}
}

func testSealed(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	k.append(k.appender(kinds.Pods.Kind), k.pod("a", 1))
	first := turn("web", "{}")
	_, err := b.Store(k.ctx, first, 0)
	k.must(err)
	outcome := events.Message{Subject: subject.Outcome(controller, events.LaneWrite, key("web")), Data: []byte("{}")}
	_, err = b.Put(k.ctx, outcome, "one")
	k.must(err)
	k.must(b.Schedule(k.ctx, events.Wake{Controller: controller, Key: key("web"), At: time.Now()}))
	eventually.True(k, Patience, "the wake has fired", func() bool {
		_, there, err := b.Last(k.ctx, subject.WakeStream, subject.Wake(controller, key("web")))
		return err == nil && there
	})
	for stream, on := range map[string]string{
		subject.LogStream("pods"):      subject.Delta(podRef("a")),
		subject.TurnStream(controller): first.Subject, subject.OutcomeStream(controller): outcome.Subject,
		subject.WakeStream: subject.Wake(controller, key("web")),
	} {
		var m events.Message
		eventually.True(k, Patience, stream+" has the message", func() (there bool) {
			m, there, err = b.Last(k.ctx, stream, on)
			return err == nil && there
		})
		if err := events.Verify(m); err != nil || !m.Sealed() {
			t.Errorf("the message of %s: sealed %t, %v", stream, m.Sealed(), err)
		}
		m.Data = append(m.Data, ' ')
		if err := events.Verify(m); !errors.Is(err, events.ErrDamaged) {
			t.Errorf("a longer message of %s: %v", stream, err)
		}
	}
}

func testNoStream(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	absent := kinds.Deployments.Name
	m := turn("a", "{}")
	m.Subject = subject.Turn("absent", "act", key("a"))
	for what, try := range map[string]func(context.Context) error{
		"StreamState": func(ctx context.Context) error {
			_, err := b.StreamState(ctx, subject.LogStream(absent))
			return err
		},
		"Append": func(ctx context.Context) error { _, err := b.Append(ctx, absent); return err },
		"Store":  func(ctx context.Context) error { _, err := b.Store(ctx, m, 0); return err },
		"Put":    func(ctx context.Context) error { _, err := b.Put(ctx, m, "id"); return err },
		"Last": func(ctx context.Context) error {
			_, _, err := b.Last(ctx, subject.LogStream(absent), "ev.x")
			return err
		},
		"At": func(ctx context.Context) error {
			_, _, err := b.At(ctx, subject.LogStream(absent), 1)
			return err
		},
		"Follow": func(ctx context.Context) error { return b.Follow(ctx, subject.LogStream(absent), 0, nil) },
		"Work": func(ctx context.Context) error {
			return b.Work(ctx, bus.Work{Stream: subject.LogStream(absent), Durable: "d"}, nil)
		},
	} {
		if err := try(k.ctx); !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("%s without a stream: %v, want ErrNoStream", what, err)
		}
	}
}

func testClose(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	r := k.follow(subject.LogStream("pods"), 0)
	w := k.work(bus.Work{Stream: subject.LogStream("pods"), Durable: "d"})
	a := k.appender(kinds.Pods.Kind)
	k.append(a, k.pod("a", 1))
	k.next(w).Ack()
	eventually.True(k, Patience, "the reader has read", func() bool { return len(r.messages()) == 1 })
	k.must(b.Close())
	k.must(b.Close()) // again: nothing happens
	if err := k.end(r); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Follow on a closed bus: %v, want ErrClosed", err)
	}
	<-w.ended
	if !errors.Is(w.err, bus.ErrClosed) {
		t.Errorf("Work on a closed bus: %v, want ErrClosed", w.err)
	}
	if err := b.Healthy(); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Healthy on a closed bus: %v, want ErrClosed", err)
	}
	if _, err := b.Store(k.ctx, turn("a", "{}"), 0); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Store on a closed bus: %v, want ErrClosed", err)
	}
	err := a.Append(k.ctx, k.pod("a", 2))
	if err == nil {
		err = a.Flush(k.ctx)
	}
	if !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Append on a closed bus: %v, want ErrClosed", err)
	}
}

func testPeers(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	ctx, cancel := context.WithCancel(k.ctx)
	heard := make(chan string, 1000)
	ended := make(chan error, 1)
	go func() {
		ended <- b.Listen(ctx, "watcher", func(data []byte) {
			select {
			case heard <- string(data):
			default:
			}
		})
	}()
	eventually.True(k, Patience, "a listener hears", func() bool {
		k.must(b.Broadcast("watcher", []byte("alive")))
		k.must(b.Broadcast("other", []byte("elsewhere")))
		return len(heard) > 0
	})
	absent := func(topic string) bool {
		asking, done := context.WithTimeout(k.ctx, 100*time.Millisecond)
		defer done()
		return b.NoListeners(asking, topic)
	}
	if absent("watcher") || !absent("other") {
		t.Errorf("absent: the topic that is listened to %t, the other one %t", absent("watcher"), absent("other"))
	}
	cancel()
	k.must(<-ended)
	close(heard)
	eventually.True(k, Patience, "nothing listens any more", func() bool { return absent("watcher") })
	for text := range heard {
		if text != "alive" && text != "" {
			t.Errorf("heard %q on the topic", text)
		}
	}
}
