package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// detection is the longest time until a cut-off replica says so.
const detection = 1550 * time.Millisecond

// server is the server that replicas work on. It answers each replica after its own delay.
type server struct {
	mu     sync.Mutex
	frozen time.Time // until then it answers nothing
}

func (s *server) freeze(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = time.Now().Add(d)
}

func (s *server) thaws() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen
}

// line is a replica's connection to the server.
type line struct {
	server *server
	dead   atomic.Bool
	takes  atomic.Int64 // nanoseconds
	err    atomic.Pointer[error]
}

func (l *line) reach(ctx context.Context) error {
	for wait := time.Duration(l.takes.Load()); wait > 0; wait = time.Until(l.server.thaws()) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	if l.dead.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := l.err.Load(); err != nil {
		return *err
	}
	return nil
}

// crew are three replicas that started one after the other.
type crew struct {
	server   *server
	lines    []*line
	replicas []*replica
}

func muster(t *testing.T) *crew {
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	c := &crew{server: &server{}}
	for i := range 3 {
		l := &line{server: c.server}
		l.takes.Store(int64(time.Duration(3*i+2) * time.Millisecond))
		c.lines = append(c.lines, l)
		c.replicas = append(c.replicas, joinReaching(t, b, fmt.Sprint("replica-", i), l.reach))
		pass(170 * time.Millisecond) // they do not probe at the same moment
	}
	pass(3 * time.Second)
	return c
}

func (c *crew) leave() {
	for _, r := range c.replicas {
		r.leave()
	}
}

// moves counts how often a piece of work changes its owner, in the view of the replicas, while
// time passes.
func (c *crew) moves(d time.Duration) (moved int) {
	before := c.division()
	for end := time.Now().Add(d); time.Now().Before(end); {
		pass(glance)
		if now := c.division(); now != before {
			before, moved = now, moved+1
		}
	}
	return moved
}

// division is the owners of some pieces of work.
func (c *crew) division() (division string) {
	for _, w := range works()[:20] {
		for i, r := range c.replicas {
			if r.First(w) {
				division += fmt.Sprint(i)
			}
		}
		division += " "
	}
	return division
}

func (c *crew) shares() []int { return shares(c.replicas...) }

func TestAReplicaThatIsCutOffGivesItsWorkAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for offset := range 5 {
			c := muster(t)
			pass(time.Duration(offset) * 110 * time.Millisecond)
			c.lines[1].dead.Store(true)
			cut := time.Now()
			for c.shares()[1] > 0 {
				if pass(10 * time.Millisecond); time.Since(cut) > detection {
					t.Fatalf("the shares are %v %v after the cut, want none of the replica that is cut off", c.shares(), time.Since(cut))
				}
			}
			t.Logf("cut off %d ms after the others had come: noticed after %v", offset*110, time.Since(cut))
			if !c.replicas[1].Unfit() || sum(c.shares()) != 600 {
				t.Errorf("the shares are %v, want all work with the others", c.shares())
			}
			pass(10 * time.Second)
			if got := c.shares(); got[1] != 0 || sum(got) != 600 {
				t.Errorf("while the replica is cut off the shares are %v, want none for it", got)
			}
			c.lines[1].dead.Store(false)
			if moved := c.moves(10 * time.Second); moved != 1 || c.shares()[1] < 100 {
				t.Errorf("the work came back in %d steps, and the shares are %v; want 1 step, and a share for it", moved, c.shares())
			}
			c.leave()
		}
	})
}

// TestAServerThatStandsStillMovesNothing: as long as it answers no replica.
func TestAServerThatStandsStillMovesNothing(t *testing.T) {
	for _, frozen := range []time.Duration{300 * time.Millisecond, time.Second, 1500 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := muster(t)
			defer c.leave()
			for range 3 {
				c.server.freeze(frozen)
				if moved := c.moves(frozen + 2*time.Second + 130*time.Millisecond); moved > 0 {
					t.Errorf("a server that answered nothing for %v moved work %d times", frozen, moved)
				}
			}
		})
	}
}

// TestASlowServerMovesNothing: its answers take long, and not equally long for all replicas.
func TestASlowServerMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := muster(t)
		defer c.leave()
		for i, takes := range []time.Duration{100 * time.Millisecond, time.Second, 600 * time.Millisecond} {
			c.lines[i].takes.Store(int64(takes))
		}
		if moved := c.moves(time.Minute); moved > 0 {
			t.Errorf("answers after 0.1, 1 and 0.6 s moved work %d times", moved)
		}
	})
}

// TestABadLineMovesNothingToAndFro: an answer comes through every three seconds.
func TestABadLineMovesNothingToAndFro(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := muster(t)
		defer c.leave()
		var moved int
		for range 10 {
			c.lines[1].dead.Store(true)
			moved += c.moves(3 * time.Second)
			c.lines[1].dead.Store(false)
			moved += c.moves(300 * time.Millisecond) // one answer, or none
		}
		if moved != 1 || c.shares()[1] != 0 {
			t.Errorf("work moved %d times, and they have %v", moved, c.shares())
		}
	})
}

// TestAReplicaThatIsRefusedGivesItsWorkAway: a refusal counts as no answer.
func TestAReplicaThatIsRefusedGivesItsWorkAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := muster(t)
		defer c.leave()
		refused := errors.New("refused")
		c.lines[0].err.Store(&refused)
		pass(detection)
		if got := c.shares(); got[0] != 0 || sum(got) != 600 {
			t.Errorf("the shares are %v, want none for the replica that is refused", got)
		}
		for _, l := range c.lines[1:] { // now all replicas are refused
			l.err.Store(&refused)
		}
		if pass(time.Minute); sum(c.shares()) != 600 {
			t.Errorf("when all are refused the shares are %v, want all work done", c.shares())
		}
	})
}

// TestAReplicaThatWakesUpIsNotCutOff: it has heard nothing for a while, and its probe is old.
func TestAReplicaThatWakesUpIsNotCutOff(t *testing.T) {
	var c contact
	c.ask(begin)
	at := begin.Add(time.Minute)
	for ; at.Before(begin.Add(time.Minute + cutOffAfter - 3*glance)); at = at.Add(glance) {
		if c.lost(at, true) {
			t.Fatalf("cut off %v after it woke up", at.Sub(begin.Add(time.Minute)))
		}
	}
	if c.lost(at.Add(glance), false) {
		t.Error("cut off while no other replica has answers")
	}
}

// TestAReplicaWithoutOthersAsksSeldom, and as often as the others once another appears.
func TestAReplicaWithoutOthersAsksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		var asked atomic.Int64
		reach := func(context.Context) error { asked.Add(1); return nil }
		a := joinReaching(t, b, "a", reach)
		defer a.leave()
		pass(2 * silence)
		asked.Store(0)
		if pass(10 * probeAlone); asked.Load() > 10 {
			t.Errorf("alone it asked %d times in %v", asked.Load(), 10*probeAlone)
		}
		other := join(t, b, "b")
		defer other.leave()
		pass(2 * silence)
		asked.Store(0)
		if pass(10 * probeEvery); asked.Load() < 9 {
			t.Errorf("beside another one it asked %d times in %v", asked.Load(), 10*probeEvery)
		}
	})
}

// A replica without an answer is cut off once another one has had answers for a total of 700 ms.
// The time between two glances counts for at most 80 ms, and an answer resets the sum.
func TestWhenAReplicaIsCutOff(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		every time.Duration
		last  time.Duration
		times int
		lost  bool
	}{
		"700 ms":              {70 * time.Millisecond, 70 * time.Millisecond, 10, true},
		"a little less":       {70 * time.Millisecond, 70*time.Millisecond - 1, 10, false},
		"after long pauses":   {time.Hour, time.Hour, 9, true},
		"a long pause before": {time.Hour, time.Hour, 8, false},
	} {
		at := start
		contact := contact{}
		contact.lost(at, true) // not in doubt
		contact.failed = true
		lost := false
		for n := range c.times {
			if at = at.Add(c.every); n == c.times-1 {
				at = at.Add(c.last - c.every)
			}
			lost = contact.lost(at, true)
		}
		if lost != c.lost {
			t.Errorf("%s: cut off: %t, want %t", name, lost, c.lost)
		}
	}
}

// A cut-off replica returns when answers have arrived for a second; a refusal is no answer.
func TestWhenAReplicaIsBack(t *testing.T) {
	at := time.Unix(1000, 0)
	c := contact{severed: true, failed: true}
	c.answer(at, errors.New("away"))
	if !c.lost(at.Add(time.Hour), false) {
		t.Error("the contact is back without an answer")
	}
	c.answer(at, nil)
	if !c.lost(at.Add(time.Second-1), false) || c.lost(at.Add(time.Second), false) {
		t.Error("the contact is not back a second after its first answer, or before")
	}
	if probeEvery != 300*time.Millisecond || probeAlone != 5*time.Second {
		t.Errorf("a replica asks every %v, and every %v alone; want 300ms and 5s", probeEvery, probeAlone)
	}
}

// Reached receives the result of each probe.
func TestAnswersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		var told atomic.Int64
		r := New(Config{
			Bus: b, Service: "toy", ID: "a", Reach: func(context.Context) error { return errors.New("away") },
			Reached: func(_ context.Context, err error) {
				if err != nil {
					told.Add(1)
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		pass(time.Second)
		if n := told.Load(); n != 4 {
			t.Errorf("in a second %d answers are told, want 4", n)
		}
		cancel()
		<-done
	})
}
