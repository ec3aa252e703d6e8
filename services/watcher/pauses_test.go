package watcher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// closed is a bus whose topics cannot be heard.
type closed struct {
	bus.Bus
	tried map[string]int
}

func (c *closed) Listen(_ context.Context, topic string, _ func([]byte)) error {
	c.tried[topic]++
	return errors.New("closed")
}

// The watcher retries once a second to listen on a topic.
func TestWhatCannotBeHeardIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &closed{memory.New(memory.Options{}), map[string]int{}}
		s := &Service{config: Config{Bus: c}, writes: newRecentWrites(tracetest.New().Tracer("watcher", trace.Options{})), kinds: map[kinds.Name]*running{}}
		s.writes.receive(trace.Write{Writer: "w", ID: "1", Begins: true, About: aPod("a")})
		for topic, listen := range map[string]func(context.Context){
			events.DamageTopic: s.listen, watchedTopic: s.answerGuards, trace.Writes: func(ctx context.Context) { s.writes.listen(ctx, c, s.watches) },
		} {
			logging, log := logged(t)
			ctx, cancel := context.WithCancel(logging)
			time.AfterFunc(4500*time.Millisecond, cancel) // virtual
			listen(ctx)
			if got := c.tried[topic]; got != 5 || strings.Count(log(), "Cannot subscribe") != 5 {
				t.Errorf("%s is tried %d times in 4.5 s, and it tells\n%s", topic, got, log())
			}
		}
		if s.writes.inFlightCount != 0 {
			t.Error("a write of which nothing can be heard is waited for")
		}
		none := newRecentWrites(nil)
		none.listen(t.Context(), c, s.watches)
		if c.tried[trace.Writes] != 5 || len(none.collectors()) != 0 || len(s.writes.collectors()) != 1 {
			t.Errorf("without traces it listens, %d times", c.tried[trace.Writes])
		}
	})
}

// A session looks every second while its kind changes, and every two minutes while it does not,
// until it is woken.
func TestASessionRestsUntilItIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newCheckTimer()
		after := func() time.Duration {
			began := time.Now()
			<-l.timer.C
			return time.Since(began)
		}
		if got := after(); got != time.Second {
			t.Errorf("at first it looks after %v", got)
		}
		l.again(false)
		time.Sleep(700 * time.Millisecond) // virtual
		l.wake()                           // it looks before that anyway
		if got := after(); got != 300*time.Millisecond {
			t.Errorf("while something happens it looks after %v", got)
		}
		l.again(true)
		if got := after(); got != 2*time.Minute {
			t.Errorf("at rest it looks after %v", got)
		}
		l.again(true)
		time.Sleep(time.Minute)
		l.wake()
		time.Sleep(700 * time.Millisecond)
		l.wake()
		if got := after(); got != 300*time.Millisecond {
			t.Errorf("when it is woken it looks after %v", got)
		}
		l.again(false)
		if got := after(); got != time.Second {
			t.Errorf("after that it looks after %v", got)
		}
	})
	k, _ := recorded(t, 1, 0)
	for looked, rests := range map[uint64]bool{2: true, 1: false} {
		if k.checkedEnd = looked; k.atRest() != rests {
			t.Errorf("what was looked at up to %d is at rest: %t", looked, k.atRest())
		}
	}
}

// Pauses begin with 50 ms, and each is about twice the one before.
func TestHowPausesGrow(t *testing.T) {
	t.Parallel()
	for range 50 {
		var p retryPause
		for _, want := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, 600 * time.Millisecond} {
			if got := p.next(away); got < want/2 || got > want*3/2 {
				t.Fatalf("a pause is %v, want about %v", got, want)
			}
		}
	}
	began := time.Now()
	ended, cancel := context.WithCancel(t.Context())
	if cancel(); true {
		pause(ended, time.Hour)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("what is ended pauses for %v", took)
	}
}

// The scrubber reads a log ten to twenty minutes after the start, and then every six hours.
func TestWhenALogIsReadThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 5, 0)
		k.reports = make(chan struct{}, 1)
		logging, log := logged(t)
		ctx, cancel := context.WithCancel(logging)
		done := make(chan struct{})
		w := &worn{Bus: a, damaged: map[string]bool{at(logPods, 2): true}}
		k.bus = w
		go func() { defer close(done); k.scrub(ctx, "pods") }()
		found := func() int {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.findings)
		}
		if time.Sleep(scrubFirst - 1); found() != 0 || len(k.reports) != 0 { // virtual
			t.Error("it is read before ten minutes are over")
		}
		time.Sleep(scrubFirst + scrubPause)
		first := found()
		if first == 0 || len(k.reports) != 1 {
			t.Errorf("after twenty minutes %d holes are found, and told %d times", first, len(k.reports))
		}
		<-k.reports
		time.Sleep(scrubEvery - scrubFirst - scrubPause - 1)
		if found() != first || len(k.reports) != 0 {
			t.Errorf("before six hours are over %d holes are found", found()-first)
		}
		a.fails(logPods, away)
		if time.Sleep(scrubFirst + 2*scrubPause); found() != first || !strings.Contains(log(), "Cannot read the log through") || len(k.reports) != 1 {
			t.Errorf("of a log that is away %d holes are found, and it tells\n%s", found()-first, log())
		}
		a.fails(logPods, nil)
		if time.Sleep(scrubEvery); found() != 2*first {
			t.Errorf("after that %d holes are found, want %d", found()-first, first)
		}
		cancel()
		<-done
	})
}
