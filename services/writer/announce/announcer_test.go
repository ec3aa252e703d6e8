package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// crying returns an announcer whose writes wait for a watcher without limit, and the messages that
// it sends.
func crying(t *testing.T) (c *Announcer, b *bustest.Bus, writes chan trace.Write, rolls chan trace.Roll) {
	t.Helper()
	b = bustest.Wrap(memory.New(memory.Options{}))
	t.Cleanup(func() { _ = b.Close() })
	c = New(Config{Bus: b, ID: "w", Log: slog.New(slog.DiscardHandler), Trace: tracetest.New().Tracer("writer", trace.Options{})})
	c.ackTimeout = time.Hour
	writes, rolls = make(chan trace.Write, 64), make(chan trace.Roll, 1024)
	go func() {
		_ = b.Listen(t.Context(), trace.Writes, func(data []byte) {
			if w, ok := trace.DecodeWrite(data); ok {
				writes <- w
			} else if r, ok := trace.DecodeRoll(data); ok {
				select {
				case rolls <- r:
				default: // the test needs only a few
				}
			}
		})
	}()
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() { defer close(kept); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-kept })
	<-rolls // the listener is subscribed
	return c, b, writes, rolls
}

func begins(id string) trace.Write {
	return trace.Write{ID: id, About: events.Ref{Kind: kinds.Pods.Name, Namespace: "ns", Name: id}, Begins: true}
}

// begin announces a write, and returns a channel that is closed when the write may be sent.
func (c *Announcer) beginsTo(w trace.Write) (sent chan struct{}) {
	sent = make(chan struct{})
	go func() { defer close(sent); c.announce(context.Background(), w) }()
	return sent
}

func waits(t *testing.T, sent chan struct{}) {
	t.Helper()
	select {
	case <-sent:
		t.Fatal("the write is carried out before a watcher has heard of it")
	default:
	}
}

// heard answers as watchers do, until a write may be sent.
func heard(t *testing.T, b bus.Bus, id string, sent chan struct{}) {
	t.Helper()
	for end := time.After(5 * time.Minute); ; {
		if err := b.Broadcast(trace.HeardBy("w"), []byte(id)); err != nil { // the announcer may not be listening yet
			t.Fatal(err)
		}
		select {
		case <-sent:
			return
		case <-end:
			t.Fatal("the write is not carried out, although a watcher has heard of it")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestAWriteIsSentWhenItIsHeard: any watcher's answer releases a write, and only that write.
func TestAWriteIsSentWhenItIsHeard(t *testing.T) {
	t.Parallel()
	c, b, writes, _ := crying(t)
	one, two := c.beginsTo(begins("one")), c.beginsTo(begins("two"))
	told := []string{(<-writes).ID, (<-writes).ID}
	if slices.Sort(told); !slices.Equal(told, []string{"one", "two"}) {
		t.Fatalf("the writes %v are announced, want one and two", told)
	}
	waits(t, one)
	heard(t, b, "one", one)
	waits(t, two)
	heard(t, b, "two", two)
	c.receive([]byte("two")) // another watcher
}

// TestNoWriteWaitsForTheDeaf: after no watcher of a kind has answered, further writes are
// announced without waiting, until a watcher answers again.
func TestNoWriteWaitsForTheDeaf(t *testing.T) {
	t.Parallel()
	c, b, writes, _ := crying(t)
	c.ackTimeout = 1
	c.announce(t.Context(), begins("one"))
	c.ackTimeout = time.Hour
	c.announce(t.Context(), begins("two"))
	<-writes
	if w := <-writes; w.ID != "two" || !w.Begins {
		t.Errorf("the announcement is %+v, want the beginning of two again", w)
	}
	other := begins("three")
	other.About.Kind = kinds.ReplicaSets.Name
	sent := c.beginsTo(other)
	<-writes
	waits(t, sent)
	heard(t, b, "three", sent)
	c.receive([]byte("two")) // at last
	again := c.beginsTo(begins("four"))
	<-writes
	waits(t, again)
	ended, stop := context.WithCancel(t.Context())
	stop()
	c.announce(ended, begins("five")) // a writer that stops waits for no watcher
	heard(t, b, "four", again)
}

// TestTheRollNamesWhatIsUnderWay: the roll also names the writes whose answer the bus did not
// take; the announcer sends those answers when the bus is back.
func TestTheRollNamesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	c, b, writes, rolls := crying(t)
	c.ackTimeout = 1
	for _, id := range []string{"open", "ended", "unsaid"} {
		c.announce(t.Context(), begins(id))
		<-writes
	}
	c.announce(t.Context(), trace.Write{ID: "ended"})
	if w := <-writes; w.ID != "ended" || w.Begins || w.Writer != "w" {
		t.Errorf("the announcement is %+v, want the end of the write ended by w", w)
	}
	b.Fail(bustest.Broadcast, errors.New("no connection"))
	c.announce(t.Context(), trace.Write{ID: "unsaid", UID: "u", Version: "7"})
	c.sendInFlight()
	b.Fail(bustest.Broadcast, nil)
	if w := <-writes; w.ID != "unsaid" || w.Version != "7" {
		t.Errorf("the announcement is %+v, want that of unsaid, at version 7", w)
	}
	named := map[string]bool{}
	for end := time.After(5 * time.Minute); ; {
		select {
		case r := <-rolls:
			for _, id := range r.Open {
				named[id] = true
			}
			if named["open"] && len(r.Open) == 1 {
				return
			}
		case <-end:
			t.Fatalf("the rolls named %v, and never what is under way alone", named)
		}
	}
}

// recording returns a bus that records what is published instead of sending it.
func recording(said *[][]byte) *bustest.Bus {
	return &bustest.Bus{OnBroadcast: func(_ string, data []byte) error {
		*said = append(*said, data)
		return nil
	}}
}

func telling(b bus.Bus) *Announcer {
	return New(Config{Bus: b, ID: "w", Log: slog.New(slog.DiscardHandler), Trace: tracetest.New().Tracer("writer", trace.Options{})})
}

// A write waits 250 ms for watchers that do not answer, and the next ones do not wait; nor does a
// write that cannot be announced.
func TestForHowLongAWriteWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := recording(new([][]byte))
		c := telling(b)
		took := func(w trace.Write) time.Duration {
			began := time.Now()
			c.announce(t.Context(), w)
			return time.Since(began)
		}
		if first, second := took(begins("one")), took(begins("two")); first != 250*time.Millisecond || second != 0 {
			t.Errorf("the first waits %v, the second %v", first, second)
		}
		other := begins("three")
		other.About.Kind = kinds.ReplicaSets.Name
		b.Fail(bustest.Broadcast, errors.New("away"))
		if waited := took(other); waited != 0 {
			t.Errorf("one of which no watcher can be told waits %v", waited)
		}
		c.receive([]byte("none")) // an unknown write
	})
}

// The announcer keeps a bounded number of answers that the bus does not take; their writes stay in
// flight until it does. The roll names the writes in flight in order.
func TestAnswersThatAreNotTaken(t *testing.T) {
	var said [][]byte
	b := recording(&said).Fail(bustest.Broadcast, errors.New("away"))
	c := telling(b)
	for i := range 1025 {
		w := begins(fmt.Sprint("write-", i))
		c.announceBegin(w)
		w.Begins = false
		c.announceEnd(w)
	}
	if len(c.unsent) != 1024 || len(c.open) != 1024 {
		t.Errorf("of 1025 answers %d are kept, and %d writes are under way; want 1024 and 1024", len(c.unsent), len(c.open))
	}
	c.sendInFlight()
	if len(c.unsent) != 1024 || len(c.open) != 1024 {
		t.Errorf("while the bus is away %d answers are kept, and %d writes are under way; want 1024 and 1024", len(c.unsent), len(c.open))
	}
	b.Fail(bustest.Broadcast, nil)
	for i := range 20 {
		c.announceBegin(begins(fmt.Sprint("open-", i)))
	}
	c.sendInFlight()
	roll, ok := trace.DecodeRoll(said[len(said)-1])
	if len(said) != 1025 || !ok || roll.Writer != "w" || len(roll.Open) != 20 || !slices.IsSorted(roll.Open) || len(c.unsent) != 0 {
		t.Errorf("when the bus is back %d messages are published, the last one %+v; want 1025, and the 20 open writes in order", len(said), roll)
	}
}

// A writer without traces announces nothing; one that cannot listen for the watchers retries at
// intervals.
func TestAWriterThatTellsNothing(t *testing.T) {
	none := New(Config{ID: "w"})
	if none.Func() != nil || telling(nil).Func() == nil {
		t.Error("Func is not nil without traces, or nil with them")
	}
	none.Run(t.Context())
	synctest.Test(t, func(t *testing.T) {
		b := recording(new([][]byte)).Fail(bustest.Listen, errors.New("away"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { telling(b).Run(ctx); close(ended) }()
		time.Sleep(10*trace.RollEvery + trace.RollEvery/2) // virtual
		stop()
		<-ended
		if tries, said := b.Count(bustest.Listen), b.Count(bustest.Broadcast); tries != 11 || said != 11 {
			t.Errorf("in ten periods the announcer subscribes %d times and publishes %d rolls, want 11 and 11", tries, said)
		}
	})
}
