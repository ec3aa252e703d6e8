package streamtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

func testLast(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	stream, at := subject.TurnStream(controller), subject.Turn(controller, events.LaneWrite, key("a"))
	if _, ok, err := b.Last(k.ctx, stream, at); ok || err != nil {
		t.Errorf("the last of nothing: %v, %v", ok, err)
	}
	if _, ok, err := b.At(k.ctx, stream, 1); ok || err != nil {
		t.Errorf("the first of nothing: %v, %v", ok, err)
	}
	if _, ok, err := b.At(k.ctx, stream, 0); ok || err != nil {
		t.Errorf("message 0: %v, %v", ok, err)
	}
	n, err := b.Store(k.ctx, turn("a", "1"), 0)
	k.must(err)
	_, err = b.Store(k.ctx, turn("b", "other"), 0)
	k.must(err)
	n, err = b.Store(k.ctx, turn("a", "2"), n)
	k.must(err)
	m, ok, err := b.Last(k.ctx, stream, at)
	k.must(err)
	if !ok || m.Sequence != n || string(m.Data) != "2" || m.Subject != at || m.Stream != stream || m.Time.IsZero() {
		t.Errorf("the last is %+v, %v", m, ok)
	}
	if m.Get(events.HeaderContentType) != kinds.JSON {
		t.Errorf("the headers are %v", m.Header)
	}
	m, ok, err = b.At(k.ctx, stream, 1)
	k.must(err)
	if !ok || string(m.Data) != "1" || m.Subject != at {
		t.Errorf("the first is %+v, %v", m, ok)
	}
}

// testManagers: the field manager of a change arrives, even if parts of it are empty. NATS
// trims the values of headers.
func testManagers(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	at := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	a := k.appender(kinds.Pods.Kind)
	for i, d := range []events.Delta{
		{By: events.Manager{Name: "kubectl", Operation: "Update", Subresource: "scale"}, Proven: true},
		{By: events.Manager{Name: "kubectl", Operation: "Update"}},
		{By: events.Manager{Name: "bare"}},
		{
			By:     events.Manager{Name: "kubelet", Operation: "Update", Subresource: "status", Time: at},
			Beside: []events.Manager{{Name: "cat", Operation: "Apply", Time: at}, {Name: "kubectl", Operation: "Update", Subresource: "scale"}},
		},
	} {
		d.Kind, d.Ref, d.Op, d.UID, d.ResourceVersion = kinds.Pods.Name, podRef("a"), events.Is, "uid", strconv.Itoa(i+1)
		k.append(a, events.Seal(subject.Message(d)))
		got, err := events.DecodeDelta(d.Ref, k.last(subject.LogStream("pods"), "a"))
		k.must(err)
		if got.By != d.By || got.Proven != d.Proven || !slices.Equal(got.Beside, d.Beside) {
			t.Errorf("%+v beside %+v came back as %+v beside %+v", d.By, d.Beside, got.By, got.Beside)
		}
	}
	// As an older version wrote it, and as it arrived: the last of the four parts is missing.
	old := subject.Message(events.Delta{Kind: kinds.Pods.Name, Ref: podRef("a"), Op: events.Is, UID: "uid", ResourceVersion: "9"})
	old.Header[events.HeaderManager] = []string{"kubectl\tUpdate\tscale\t"}
	k.append(a, events.Seal(old))
	got, err := events.DecodeDelta(podRef("a"), k.last(subject.LogStream("pods"), "a"))
	k.must(err)
	if !got.By.Scales() || got.By.Name != "kubectl" {
		t.Errorf("a stored scaling is by %+v", got.By)
	}
}

func testFollow(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	a := k.appender(kinds.Pods.Kind)
	for i := 1; i <= 10; i++ {
		k.append(a, k.pod(fmt.Sprint("pod-", i), i))
	}
	log := subject.LogStream("pods")
	all, one, some, end := k.follow(log, 0), k.follow(log, 1), k.follow(log, 4), k.follow(log, 11)
	eventually.True(k, Patience, "what is there is read", func() bool {
		return len(all.messages()) == 10 && len(one.messages()) == 10 && len(some.messages()) == 7
	})
	for i := 11; i <= 500; i++ {
		k.must(a.Append(k.ctx, k.pod(fmt.Sprint("pod-", i%20), i)))
	}
	k.must(a.Flush(k.ctx))
	for r, from := range map[*reading]uint64{all: 1, one: 1, some: 4, end: 11} {
		eventually.True(k, Patience, "what was stored later is read", func() bool { return len(r.messages()) == 501-int(from) })
		for i, n := range r.sequences() {
			if n != from+uint64(i) {
				t.Fatalf("message %d from %d has sequence %d", i, from, n)
			}
		}
		r.cancel()
		k.must(k.end(r))
	}
}

func testFollowHandlerError(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	k.append(k.appender(kinds.Pods.Kind), k.pod("a", 1))
	mine := errors.New("mine")
	if err := b.Follow(k.ctx, subject.LogStream("pods"), 0, func([]events.Message) error { return mine }); err != mine {
		t.Errorf("the handler's error came back as %v", err)
	}
	// Even an error that has a meaning to the bus itself.
	if err := b.Follow(k.ctx, subject.LogStream("pods"), 0, func([]events.Message) error { return context.Canceled }); err != context.Canceled {
		t.Errorf("the handler's error came back as %v", err)
	}
}

func testFollowForgotten(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	k.append(k.appender(kinds.Pods.Kind), k.pod("a", 1))
	r := k.follow(subject.LogStream("pods"), 0)
	eventually.True(k, Patience, "the stream is read", func() bool { return len(r.messages()) == 1 })
	k.must(b.DeleteKind(k.ctx, kinds.Pods.Name))
	if err := k.end(r); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("Follow of a stream that disappeared: %v, want ErrNoStream", err)
	}
}

func testFollowBeyondTheEnd(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	k.append(k.appender(kinds.Pods.Kind), k.pod("a", 1), k.pod("a", 2))
	err := k.end(k.follow(subject.LogStream("pods"), 4))
	if !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("Follow from 4 of a stream that ends at 2: %v, want ErrOvertaken", err)
	}
}

func testWork(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	for i := range 5 {
		_, err := b.Store(k.ctx, turn(fmt.Sprint("key-", i), fmt.Sprint(i)), 0)
		k.must(err)
	}
	job := bus.Work{Stream: subject.TurnStream(controller), Durable: "writer"}
	w := k.work(job)
	for i := range 5 {
		d := k.next(w)
		m := d.Message()
		if m.Sequence != uint64(i+1) || d.Attempt() != 1 || string(m.Data) != fmt.Sprint(i) ||
			m.Stream != job.Stream || m.Time.IsZero() || m.Get(events.HeaderContentType) != kinds.JSON {
			t.Fatalf("delivery %d is %+v, attempt %d", i, m, d.Attempt())
		}
		d.Ack()
		d.Ack() // a second answer is harmless
	}
	k.stop(w)
	// The position is kept under the name, and only there.
	n, err := b.Store(k.ctx, turn("later", "later"), 0)
	k.must(err)
	if d := k.next(k.work(job)); d.Message().Sequence != n {
		t.Errorf("after a pause the work goes on at %d, want %d", d.Message().Sequence, n)
	}
	job.Durable = "other"
	if d := k.next(k.work(job)); d.Message().Sequence != 1 {
		t.Errorf("another consumer begins at %d, want 1", d.Message().Sequence)
	}
}

func testWorkShared(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	job := bus.Work{Stream: subject.TurnStream(controller), Durable: "writer", AckWait: 10 * time.Second}
	one, two := k.work(job), k.work(job)
	const n = 400
	for i := range n {
		_, err := b.Store(k.ctx, turn(fmt.Sprint("key-", i), ""), 0)
		k.must(err)
	}
	seen := map[uint64]int{}
	shares := map[*working]int{}
	for len(seen) < n {
		var d bus.Delivery
		from := one
		select {
		case d = <-one.deliveries:
		case d = <-two.deliveries:
			from = two
		case <-time.After(Patience):
			t.Fatalf("%d of %d delivered", len(seen), n)
		}
		seen[d.Message().Sequence]++
		shares[from]++
		d.Ack()
	}
	for sequence, times := range seen {
		if times != 1 {
			t.Errorf("message %d was delivered %d times", sequence, times)
		}
	}
	// When one worker leaves, the other gets everything.
	k.stop(one)
	for i := range 20 {
		_, err := b.Store(k.ctx, turn(fmt.Sprint("more-", i), ""), 0)
		k.must(err)
	}
	for range 20 {
		k.next(two).Ack()
	}
}

func testWorkMaxPending(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	for i := range 10 {
		_, err := b.Store(k.ctx, turn(fmt.Sprint("key-", i), ""), 0)
		k.must(err)
	}
	w := k.work(bus.Work{Stream: subject.TurnStream(controller), Durable: "writer", MaxPending: 3})
	held := []bus.Delivery{k.next(w), k.next(w), k.next(w)}
	k.silence(w, 300*time.Millisecond)
	held[1].Ack()
	if d := k.next(w); d.Message().Sequence != 4 {
		t.Errorf("the fourth delivery is of %d", d.Message().Sequence)
	}
}
