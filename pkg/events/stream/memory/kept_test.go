package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// inTime runs a test with a bus of its own, in virtual time.
func inTime(t *testing.T, o memory.Options, test func(t *testing.T, b *memory.Bus)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(o)
		must(t, errors.Join(b.EnsureKind(t.Context(), kinds.Pods.Kind), b.EnsureController(t.Context(), "c")))
		test(t, b)
		must(t, b.Close())
		synctest.Wait()
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at is how a stream stands.
func at(t *testing.T, b *memory.Bus, stream string) bus.State {
	t.Helper()
	state, err := b.StreamState(t.Context(), stream)
	must(t, err)
	return state
}

// turn stores a turn of a key, with a body of so many bytes.
func turn(t *testing.T, b *memory.Bus, key string, size int) uint64 {
	t.Helper()
	on := subject.Turn("c", events.LaneWrite, events.Key{Name: key})
	sequence, err := b.Put(t.Context(), events.Message{Subject: on, Data: make([]byte, size)}, fmt.Sprint(key, time.Now().UnixNano()))
	must(t, err)
	return sequence
}

var stored = subject.TurnStream("c")

// tell appends a delta of a pod to its log.
func tell(t *testing.T, b *memory.Bus, op events.Op, name string) {
	t.Helper()
	d := events.Delta{Kind: "pods", Op: op, ResourceVersion: "1", At: time.Now()}
	if name != "" {
		d.Ref, d.UID = events.Ref{Kind: "pods", Namespace: "shop", Name: name}, "u"
	}
	a, err := b.Append(t.Context(), "pods")
	must(t, err)
	must(t, errors.Join(a.Append(t.Context(), subject.Message(d)), a.Flush(t.Context()), a.Close()))
}

// How a stream stands: from which message to which, how many, how much, since when and for how
// long they are kept.
func TestHowAStreamStands(t *testing.T) {
	inTime(t, memory.Options{LogAge: time.Hour, LogBytes: 1 << 20}, func(t *testing.T, b *memory.Bus) {
		made := time.Now()
		if got := at(t, b, stored); got != (bus.State{First: 1, Created: made, Now: made, Keeps: bus.Retention{Age: time.Hour, Bytes: 1 << 20}}) {
			t.Errorf("empty it stands at %+v", got)
		}
		time.Sleep(time.Minute)
		first := time.Now()
		turn(t, b, "a", 100)
		time.Sleep(time.Minute)
		turn(t, b, "b", 100)
		size := uint64(200)
		for _, key := range []string{"a", "b"} {
			size += uint64(len(subject.Turn("c", events.LaneWrite, events.Key{Name: key})))
		}
		want := bus.State{First: 1, Last: 2, Messages: 2, Bytes: size, Created: made, Begins: first, Now: time.Now(), Keeps: bus.Retention{Age: time.Hour, Bytes: 1 << 20}}
		if got := at(t, b, stored); got != want {
			t.Errorf("with two it stands at %+v, want %+v", got, want)
		}
		for stream, keeps := range map[string]bus.Retention{
			"EV_pods": {Age: time.Hour, Bytes: 1 << 20}, "OUTCOME_c": {Age: time.Hour, Bytes: 1 << 20}, "WAKE": {}, "STATUS": {Age: time.Minute, Bytes: 1 << 20},
		} {
			if got := at(t, b, stream); got.Keeps != keeps {
				t.Errorf("%s keeps %+v, want %+v", stream, got.Keeps, keeps)
			}
		}
	})
}

// What is older than is kept goes, and the oldest where all are too much.
func TestWhatIsKeptOfAStream(t *testing.T) {
	inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
		for range 3 {
			turn(t, b, "a", 1)
			time.Sleep(time.Hour)
		}
		time.Sleep(21*time.Hour - 1)
		if got := at(t, b, stored); got.First != 1 || got.Messages != 3 {
			t.Errorf("before a day has passed the stream has the state %+v, want all 3 messages", got)
		}
		time.Sleep(1)
		if got := at(t, b, stored); got.First != 2 || got.Messages != 2 || got.Last != 3 {
			t.Errorf("after a day the stream has the state %+v, want 2 messages from 2 on", got)
		}
		time.Sleep(24 * time.Hour)
		if got := at(t, b, stored); got.First != 4 || got.Messages != 0 || got.Last != 3 || got.Bytes != 0 || !got.Begins.IsZero() {
			t.Errorf("when all have expired the stream has the state %+v, want none before 4", got)
		}
	})
	size := len(subject.Turn("c", events.LaneWrite, events.Key{Name: "a"})) + 100
	inTime(t, memory.Options{LogBytes: int64(3 * size)}, func(t *testing.T, b *memory.Bus) {
		for _, want := range []uint64{1, 1, 1, 2, 3} {
			time.Sleep(1)
			if turn(t, b, "a", 100); at(t, b, stored).First != want {
				t.Errorf("with %d bytes it begins with %d, want %d", at(t, b, stored).Bytes, at(t, b, stored).First, want)
			}
		}
		time.Sleep(1)
		if turn(t, b, "a", 3*100); at(t, b, stored).Messages != 1 {
			t.Errorf("beside a large one there are %d", at(t, b, stored).Messages)
		}
	})
}

// A mark goes after an hour, and all else with the log.
func TestHowLongDeltasStay(t *testing.T) {
	for age, marks := range map[time.Duration]time.Duration{24 * time.Hour: time.Hour, 30 * time.Minute: 30 * time.Minute} {
		inTime(t, memory.Options{LogAge: age}, func(t *testing.T, b *memory.Bus) {
			tell(t, b, events.Is, "a")
			tell(t, b, events.Gone, "b")
			tell(t, b, events.Mark, "")
			expect := func(when string, want uint64) {
				t.Helper()
				if got := at(t, b, "EV_pods").Messages; got != want {
					t.Errorf("of a log of %v, %s %d messages are left, want %d", age, when, got, want)
				}
			}
			time.Sleep(marks - 1)
			expect("before a mark's time", 3)
			time.Sleep(2)
			expect("behind a mark's time", map[bool]uint64{true: 2}[marks < age])
			time.Sleep(age - marks - 2)
			expect("before its own time", map[bool]uint64{true: 2}[marks < age])
			time.Sleep(2)
			expect("behind its own time", 0)
			if _, there, err := b.Last(t.Context(), "EV_pods", subject.Delta(events.Ref{Kind: "pods", Namespace: "shop", Name: "a"})); err != nil || there {
				t.Errorf("Last has an expired message: %t, %v", there, err)
			}
		})
	}
}

// A message is stored once under an id within two minutes, and again behind that.
func TestHowLongAnIDIsRemembered(t *testing.T) {
	inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
		put := func(after time.Duration, want uint64) {
			t.Helper()
			time.Sleep(after)
			got, err := b.Put(t.Context(), events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: "a"})}, "id")
			if must(t, err); got != want {
				t.Errorf("a message with the ID of before is stored at %d, want %d", got, want)
			}
		}
		put(0, 1)
		put(2*time.Minute-1, 1)
		put(1, 2)
	})
}

// A wake fires at its time, once and not before; one that is set anew replaces it, and one of the
// past fires at once. What fired stays for a week.
func TestWhenAWakeFires(t *testing.T) {
	inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
		key := events.Key{Namespace: "shop", Name: "a"}
		set := func(in time.Duration) {
			t.Helper()
			must(t, b.Schedule(t.Context(), events.Wake{Controller: "c", Key: key, At: time.Now().Add(in)}))
		}
		fired := func(after time.Duration, set, want bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			_, waits, err := b.Last(t.Context(), subject.WakeStream, subject.Schedule("c", key))
			must(t, err)
			_, there, err := b.Last(t.Context(), subject.WakeStream, subject.Wake("c", key))
			if must(t, err); there != want || waits != set {
				t.Errorf("the wake has fired: %t, want %t; it is scheduled: %t, want %t", there, want, waits, set)
			}
		}
		set(time.Hour)
		set(2 * time.Hour)
		fired(2*time.Hour-1, true, false)
		fired(1, false, true)
		fired(7*24*time.Hour-1, false, true)
		fired(1, false, false)
		set(-time.Hour)
		fired(0, false, true)
	})
}

// What a stream lost at its end is there no more, and what was the newest of a subject before is
// again; what is stored then has the sequences anew, and workers are given it.
func TestAStreamThatLosesItsEnd(t *testing.T) {
	inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
		var given []uint64
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- b.Work(ctx, bus.Work{Stream: stored, Durable: "w"}, func(d bus.Delivery) { given = append(given, d.Message().Sequence); d.Ack() })
		}()
		for _, key := range []string{"a", "b", "a", "a"} {
			time.Sleep(1)
			turn(t, b, key, 1)
		}
		synctest.Wait()
		must(t, b.Truncate(stored, 2))
		last := func(key string) uint64 {
			m, _, err := b.Last(t.Context(), stored, subject.Turn("c", events.LaneWrite, events.Key{Name: key}))
			must(t, err)
			return m.Sequence
		}
		if got := at(t, b, stored); got.Last != 2 || got.Messages != 2 || last("a") != 1 || last("b") != 2 {
			t.Errorf("the stream has the state %+v, with the last of a at %d and of b at %d", got, last("a"), last("b"))
		}
		time.Sleep(1)
		if got := turn(t, b, "b", 1); got != 3 || last("b") != 3 {
			t.Errorf("the next turn is stored at %d, want 3", got)
		}
		synctest.Wait()
		if !slices.Equal(given, []uint64{1, 2, 3, 4, 3}) {
			t.Errorf("a worker was given %v", given)
		}
		must(t, b.Truncate(stored, 99))
		if got := at(t, b, stored); got.Last != 3 {
			t.Errorf("where nothing is to be lost it stands at %+v", got)
		}
		if err := b.Truncate("TURN_none", 1); !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("a stream that is not there: %v", err)
		}
		stop()
		must(t, <-ended)
	})
}

// Of readers that have ended the one that was furthest behind counts, for ten minutes, and one
// that reads does not.
func TestWhatReadersLeft(t *testing.T) {
	inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
		for range 5 {
			time.Sleep(1)
			turn(t, b, "a", 1)
		}
		read := func() (dealt *atomic.Uint64, stop func()) {
			dealt = &atomic.Uint64{}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- b.Consume(ctx, stored, 1, dealt.Load, func([]events.Message) error { return nil }) }()
			synctest.Wait()
			return dealt, func() { cancel(); must(t, <-ended) }
		}
		left := func(when string, want uint64, some bool) {
			t.Helper()
			if got, ok, err := b.Acknowledged(t.Context(), stored); err != nil || got != want || ok != some {
				t.Errorf("%s the stream is acknowledged up to %d, %t (%v), want %d, %t", when, got, ok, err, want, some)
			}
		}
		left("before anyone reads", 0, false)
		one, endOne := read()
		two, endTwo := read()
		left("while two read", 0, false)
		one.Store(4)
		two.Store(3)
		time.Sleep(250*time.Millisecond - 1)
		if found, err := b.Consumers(t.Context(), stored); err != nil || len(found) != 2 || found[0].Answered != 0 || found[0].Unanswered != 5 {
			t.Errorf("before they acknowledge the consumers are %+v (%v), want 5 unanswered", found, err)
		}
		time.Sleep(2)
		synctest.Wait()
		if found, err := b.Consumers(t.Context(), stored); err != nil || len(found) != 2 || found[0].Answered != 4 || found[0].Unanswered != 1 || found[0].Ended || found[1].Answered != 3 {
			t.Errorf("after they have acknowledged the consumers are %+v (%v), want up to 4 and 3", found, err)
		}
		two.Store(2) // it goes back by nothing
		time.Sleep(time.Second)
		endOne()
		left("when one has ended", 4, true)
		time.Sleep(time.Minute)
		endTwo()
		left("when both have ended", 3, true)
		time.Sleep(9*time.Minute - 1)
		left("before ten minutes have passed", 3, true)
		time.Sleep(time.Minute)
		left("when ten minutes of the first have passed", 3, true)
		time.Sleep(1)
		left("when ten minutes have passed", 0, false)
		if found, err := b.Consumers(t.Context(), stored); err != nil || len(found) != 0 {
			t.Errorf("when ten minutes have passed the consumers are %+v (%v), want none", found, err)
		}
		if _, _, err := b.Acknowledged(t.Context(), "TURN_none"); !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("the acknowledgements of a missing stream: %v, want ErrNoStream", err)
		}
	})
}

// counting has a worker take all that comes, and counts what has come after a while.
func counting(t *testing.T, b *memory.Bus, all *[]bus.Delivery) (took func(after time.Duration) int, stop func()) {
	t.Helper()
	taken, stop := takes(t, b, bus.Work{})
	return func(after time.Duration) (n int) {
		time.Sleep(after)
		for {
			synctest.Wait()
			select {
			case d := <-taken:
				*all, n = append(*all, d), n+1
			default:
				return n
			}
		}
	}, stop
}

// A delivery comes again after half a minute, at once or after a minute at most as is asked; no
// more than five thousand wait for an answer.
func TestWhenADeliveryComesAgain(t *testing.T) {
	inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
		for i := range 5001 {
			on := subject.Turn("c", events.LaneWrite, events.Key{Name: fmt.Sprint(i)})
			_, err := b.Put(t.Context(), events.Message{Subject: on}, on)
			must(t, err)
		}
		var all []bus.Delivery
		took, stop := counting(t, b, &all)
		if n := took(0); n != 5000 {
			t.Errorf("%d wait for an answer", n)
		}
		for _, d := range all[3:] {
			d.Ack()
		}
		if n := took(0); n != 1 {
			t.Errorf("then %d come", n)
		}
		all[len(all)-1].Ack()
		if n := took(30*time.Second - 1); n != 0 {
			t.Errorf("%d come again too soon", n)
		}
		if n := took(1); n != 3 {
			t.Errorf("%d messages are redelivered, want 3", n)
		}
		if found, err := b.Consumers(t.Context(), stored); err != nil || len(found) != 1 || found[0].Again != 3 || found[0].Unanswered != 3 {
			t.Errorf("after three redeliveries the consumer is %+v (%v), want 3 again and unanswered", found, err)
		}
		again := slices.Clone(all[len(all)-3:])
		again[0].NakWithDelay(time.Hour)
		again[1].NakWithDelay(-time.Hour)
		again[2].NakWithDelay(time.Second)
		again[2].Ack() // it has been answered
		for i, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {time.Second, 1}, {28 * time.Second, 0}} {
			if n := took(step.after); n != step.want {
				t.Errorf("at step %d %d come again, want %d", i, n, step.want)
			}
		}
		for _, d := range all[len(all)-2:] {
			d.Term("because")
		}
		if n := took(31*time.Second - 1); n != 0 {
			t.Errorf("before a minute has passed %d messages are redelivered, want 0", n)
		}
		if n := took(1); n != 1 || all[len(all)-1].Attempt() != 3 {
			t.Errorf("after a minute %d messages are redelivered, want 1, at attempt 3", n)
		}
		all[len(all)-1].Ack()
		if n := took(time.Hour); n != 0 {
			t.Errorf("when all are answered %d messages are redelivered, want 0", n)
		}
		stop()
	})
}

// A message goes into the stream of its subject; what is in none is refused.
func TestWhichStreamHoldsASubject(t *testing.T) {
	inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
		must(t, errors.Join(b.EnsureShadow(t.Context(), "c"), b.EnsureNotary(t.Context(), 0)))
		key := events.Key{Name: "a"}
		for on, want := range map[string]string{
			subject.Delta(events.Ref{Kind: "pods", Name: "a"}): "EV_pods", subject.Turn("c", events.LaneWrite, key): "TURN_c", subject.Outcome("c", events.LaneWrite, key): "OUTCOME_c",
			subject.ShadowTurn("c", events.LaneWrite, key): "SHADOW_c", subject.Schedule("c", key): "WAKE", subject.Wake("c", key): "WAKE", subject.StatusSubject: "STATUS",
			subject.WatcherStatusSubject: "STATUS", subject.Notary("EV_pods"): "NOTARY", "turn.none.act.1": "", "turn.c": "", "other.c.x": "", "": "",
		} {
			_, err := b.Put(t.Context(), events.Message{Subject: on}, on)
			if want == "" {
				if !errors.Is(err, bus.ErrNoStream) {
					t.Errorf("%q is stored: %v", on, err)
				}
				continue
			}
			must(t, err)
			if m, there, err := b.Last(t.Context(), want, on); err != nil || !there || m.Stream != want || m.Get("Nats-Msg-Id") != on {
				t.Errorf("%q is not in %s: %+v, %v", on, want, m, err)
			}
		}
		on := subject.Turn("c", events.LaneStatus, key)
		sequence, err := b.Store(t.Context(), events.Message{Subject: on}, 0)
		must(t, err)
		if m, _, err := b.At(t.Context(), stored, sequence); err != nil || m.Get("Nats-Expected-Last-Subject-Sequence") != "0" {
			t.Errorf("the turn is stored as %+v, %v; want it with the sequence that was expected", m, err)
		}
		if _, err := b.Store(t.Context(), events.Message{Subject: on}, sequence-1); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("behind another one: %v", err)
		}
	})
}

// The notary's stream is never made to keep less.
func TestPagesAreKeptAsLongAsIsAsked(t *testing.T) {
	inTime(t, memory.Options{LogBytes: 7}, func(t *testing.T, b *memory.Bus) {
		for _, step := range []struct{ ask, want time.Duration }{{time.Hour, time.Hour}, {time.Minute, time.Hour}, {2 * time.Hour, 2 * time.Hour}, {0, 0}, {time.Hour, 0}} {
			must(t, b.EnsureNotary(t.Context(), step.ask))
			if got := at(t, b, subject.NotaryStream).Keeps; got != (bus.Retention{Age: step.want}) {
				t.Errorf("asked to keep pages for %v it keeps %+v, want %v", step.ask, got, step.want)
			}
		}
	})
}

// When a bus is closed everything ends, and says why.
func TestABusThatIsClosed(t *testing.T) {
	inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
		if err := b.Healthy(); err != nil {
			t.Errorf("before: %v", err)
		}
		a, err := b.Append(t.Context(), "pods")
		must(t, err)
		ended := make(chan error, 3)
		go func() { ended <- b.Listen(t.Context(), "topic", func([]byte) {}) }()
		go func() { ended <- b.Follow(t.Context(), stored, 1, func([]events.Message) error { return nil }) }()
		go func() { ended <- b.Work(t.Context(), bus.Work{Stream: stored, Durable: "w"}, func(bus.Delivery) {}) }()
		synctest.Wait()
		must(t, errors.Join(b.Close(), b.Close()))
		for range 3 {
			if err := <-ended; !errors.Is(err, bus.ErrClosed) {
				t.Errorf("a reader ends with %v", err)
			}
		}
		_, state := b.StreamState(t.Context(), stored)
		for _, err := range []error{b.Healthy(), state, a.Append(t.Context(), events.Message{}), b.Broadcast("topic", nil)} {
			if !errors.Is(err, bus.ErrClosed) {
				t.Errorf("then: %v", err)
			}
		}
		if b.NoListeners(t.Context(), "topic") {
			t.Error("a bus that is closed knows who is absent")
		}
	})
}

// What is said reaches all who listen on its topic, and no others; one that does not hear it
// misses what is beyond its patience.
func TestWhoHearsWhatIsSaid(t *testing.T) {
	inTime(t, memory.Options{}, func(t *testing.T, b *memory.Bus) {
		ctx, stop := context.WithCancel(t.Context())
		var heard [3]atomic.Int64
		busy := make(chan struct{})
		ended := make(chan error, 3)
		for i, topic := range []string{"a", "a", "b"} {
			go func() {
				ended <- b.Listen(ctx, topic, func(data []byte) {
					if i == 1 {
						<-busy
					}
					heard[i].Add(int64(len(data)))
				})
			}()
		}
		synctest.Wait()
		if b.NoListeners(t.Context(), "a") || b.NoListeners(t.Context(), "b") || !b.NoListeners(t.Context(), "c") {
			t.Error("NoListeners is wrong about the topics a, b and c")
		}
		for range 300 {
			must(t, b.Broadcast("a", []byte("x")))
			synctest.Wait()
		}
		close(busy)
		synctest.Wait()
		if heard[0].Load() != 300 || heard[1].Load() != 257 || heard[2].Load() != 0 {
			t.Errorf("of 300 messages one listener got %d, a busy one %d, and one on another topic %d; want 300, 257, 0", heard[0].Load(), heard[1].Load(), heard[2].Load())
		}
		stop()
		for range 3 {
			must(t, <-ended)
		}
		if !b.NoListeners(t.Context(), "a") {
			t.Error("one that has gone listens")
		}
	})
}
