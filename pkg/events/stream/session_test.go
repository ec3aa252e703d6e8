package stream

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/publish"
	"github.com/millrace/millrace/pkg/events/subject"
)

const patience = time.Minute

// place is a server in this process, a bus on it, and a reader of the log of pods.
type place struct {
	*testing.T
	server   *embedded.Server
	bus      *Bus
	appender bus.Appender

	mu   sync.Mutex
	read []uint64
	last events.Message // that was read
}

func newPlace(t *testing.T) *place {
	t.Helper()
	s, err := embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	p := &place{T: t, server: s, bus: connected(t, s)}
	p.must(p.bus.EnsureKind(t.Context(), kinds.Pods.Kind))
	p.must(p.bus.EnsureController(t.Context(), "c"))
	p.appender, err = p.bus.Append(t.Context(), kinds.Pods.Name)
	p.must(err)
	return p
}

func connected(t *testing.T, s *embedded.Server) *Bus {
	t.Helper()
	b, err := Connect(t.Context(), Options{Server: s, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) eventually(what string, holds func() bool) {
	p.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// append appends pods to the log; they are numbered from 1.
func (p *place) append(pods int) {
	p.Helper()
	for range pods {
		p.must(p.appender.Append(p.Context(), p.pod(int(p.appender.Last())+1)))
	}
	p.must(p.appender.Flush(p.Context()))
}

func (p *place) pod(n int) events.Message {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: fmt.Sprint("pod-", n)}
	return subject.Message(events.Delta{Kind: ref.Kind, Ref: ref, Op: events.Is, UID: "u", ResourceVersion: fmt.Sprint(n), At: time.Now()})
}

func (p *place) take(batch []events.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range batch {
		p.read, p.last = append(p.read, m.Sequence), m
	}
	return nil
}

// expect waits until exactly the messages 1 to last have been read.
func (p *place) expect(last int) {
	p.Helper()
	var got []uint64
	p.eventually(fmt.Sprint("messages 1 to ", last, " are read"), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		got = slices.Clone(p.read)
		return len(got) >= last
	})
	for i, n := range got {
		if n != uint64(i)+1 || len(got) != last {
			p.Fatalf("%d messages were read, want %d in order: %v", len(got), last, got)
		}
	}
}

// handedOver is how many messages of a stream the reader got without the server.
func (p *place) handedOver(stream string) float64 {
	return testutil.ToFloat64(p.bus.on.Stats.HandedOver.WithLabelValues(stream))
}

// expectAsStored fails unless the last message is as the server returns it, and Last finds it.
func (p *place) expectAsStored() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.last
	want, there, err := p.bus.At(p.Context(), got.Stream, got.Sequence)
	if err != nil || !there || got.Subject != want.Subject || !reflect.DeepEqual(got.Header, want.Header) || !bytes.Equal(got.Data, want.Data) {
		p.Errorf("the message that was handed over is\n%v, want as stored\n%v (%v)", got, want, err)
	}
	if late := got.Time.Sub(want.Time); late < 0 || late > patience {
		p.Errorf("the message was stored at %v, and is handed over with the time %v", want.Time, got.Time)
	}
	if last, there, err := p.bus.Last(p.Context(), got.Stream, got.Subject); err != nil || !there || last.Sequence != got.Sequence {
		p.Errorf("the last message of %s is %d, %v; want %d", got.Subject, last.Sequence, err, got.Sequence)
	}
}

var podsLog = subject.LogStream(kinds.Pods.Name)

// consume reads the log of pods until the test ends, and returns what stops it.
func (p *place) consume(dealt func() uint64) (stop func()) {
	ctx, cancel := context.WithCancel(p.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		if err := p.bus.Consume(ctx, podsLog, 1, dealt, p.take); err != nil {
			p.Errorf("the reader ended: %v", err)
		}
	})
	stop = func() { cancel(); reading.Wait() }
	p.Cleanup(stop)
	return stop
}

// In one process, readers get what is published without the server, also from another bus, and the
// server keeps how far they have dealt with it.
func TestMessagesAreHandedOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.append(5)
	stop := p.consume(func() uint64 { return 12 })
	p.expect(5)
	p.eventually("messages are handed over", func() bool { p.append(1); return p.handedOver(podsLog) > 0 })
	last := int(p.appender.Last())
	p.expect(last)
	before := p.handedOver(podsLog)
	other, err := connected(t, p.server).Append(t.Context(), kinds.Pods.Name)
	p.must(err)
	_ = p.appender.Close()
	p.appender = other
	p.append(300)
	p.expect(last + 300)
	if got := p.handedOver(podsLog) - before; got != 300 {
		t.Errorf("%v of 300 messages were handed over", got)
	}
	p.expectAsStored()
	p.eventually("no deliveries are left", func() bool {
		dealt, ended, err := p.bus.Acknowledged(t.Context(), podsLog)
		return err == nil && dealt == 0 && !ended
	})
	stop()
	p.eventually("the server knows how far the reader was", func() bool {
		dealt, ended, err := p.bus.Acknowledged(t.Context(), podsLog)
		return err == nil && dealt == 12 && ended
	})
}

// What another process publishes arrives: while it is connected, the server delivers.
func TestAnotherProcessPublishes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.consume(func() uint64 { return 0 })
	p.eventually("messages are handed over", func() bool { p.append(1); return p.handedOver(podsLog) > 0 })
	_ = p.appender.Close()
	last := int(p.appender.Last())
	outside, err := nats.Connect(p.server.URL(), nats.UserInfo(embedded.MainUser, "secret"))
	p.must(err)
	defer outside.Close()
	js, err := jetstream.New(outside)
	p.must(err)
	for n := range 50 {
		_, err := js.PublishMsg(t.Context(), publish.Outgoing(p.pod(last+n+1)))
		p.must(err)
	}
	p.expect(last + 50)
	handed := p.handedOver(podsLog)
	p.appender, err = p.bus.Append(t.Context(), kinds.Pods.Name)
	p.must(err)
	p.append(20)
	if p.expect(last + 70); p.handedOver(podsLog) != handed {
		t.Error("messages were handed over while another process might publish")
	}
	outside.Close()
	p.eventually("messages are handed over again", func() bool { p.append(1); return p.handedOver(podsLog) > handed })
	p.expect(int(p.appender.Last()))
}

// An outcome that was stored by a request without an answer, and again, is read once.
func TestAnOutcomeIsStoredTwice(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	stream := subject.OutcomeStream("c")
	go func() { _ = p.bus.Follow(t.Context(), stream, 1, p.take) }()
	put := func(id string) {
		m := events.Message{Subject: subject.Outcome("c", events.LaneWrite, events.Key{Name: id}), Header: map[string][]string{"A": {id}}, Data: []byte(id)}
		for range 2 {
			_, err := p.bus.Put(t.Context(), m, id)
			p.must(err)
		}
	}
	n := 0
	p.eventually("outcomes are handed over", func() bool { n++; put(fmt.Sprint("id-", n)); return p.handedOver(stream) > 0 })
	p.expect(n)
	p.expectAsStored()

	// A publisher that does not know what was stored says so, and what it missed arrives.
	raw := publish.Outgoing(events.Message{Subject: subject.Outcome("c", events.LaneWrite, events.Key{Name: "unheard"}), Header: map[string][]string{"A": {"a"}}}, jetstream.MsgIDHeader, "unheard")
	_, err := p.bus.on.JetStream.PublishMsg(t.Context(), raw)
	p.must(err)
	p.bus.on.Hub.Lose(stream)
	p.expect(n + 1)
	put("after")
	p.expect(n + 2)
}

// Wakes are published by the server: their readers never go over to the publishers of the process.
func TestWakesAreNotHandedOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	go func() { _ = p.bus.Follow(t.Context(), subject.WakeStream, 1, p.take) }()
	for n := range 3 {
		p.must(p.bus.Schedule(t.Context(), events.Wake{Controller: "c", Key: events.Key{Name: fmt.Sprint("key-", n)}, At: time.Now().Add(time.Second)}))
	}
	p.eventually("the wakes fire", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.read) >= 6 // three are scheduled, three have fired
	})
	if got := testutil.ToFloat64(p.bus.on.Stats.Restarts.WithLabelValues(subject.WakeStream)); got != 0 {
		t.Errorf("the reader began anew %v times", got)
	}
}

// A message that its publisher neither handed over nor missed is found by comparing.
func TestAMessageThatWasNotHandedOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.consume(func() uint64 { return 0 })
	p.eventually("messages are handed over", func() bool { p.append(1); return p.handedOver(podsLog) > 0 })
	last := int(p.appender.Last())
	_, err := p.bus.on.JetStream.PublishMsg(t.Context(), publish.Outgoing(p.pod(last+1)))
	p.must(err)
	p.expect(last + 1)
}

// A reader is told that its log is gone, although the server delivers nothing to it.
func TestALogIsDeletedWhileItIsHandedOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ended := make(chan error, 1)
	go func() { ended <- p.bus.Consume(t.Context(), podsLog, 1, func() uint64 { return 0 }, p.take) }()
	p.eventually("messages are handed over", func() bool { p.append(1); return p.handedOver(podsLog) > 0 })
	p.must(p.bus.DeleteKind(t.Context(), kinds.Pods.Name))
	select {
	case err := <-ended:
		if !natserr.IsPermanent(err) {
			t.Errorf("the reader ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the reader goes on")
	}
}
