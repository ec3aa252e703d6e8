package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/cache/cachetest"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// counter is a bus that stores what a loop sends, once it is released, and sets wakes.
type counter struct {
	*stock
	hold   chan struct{} // nil: it stores everything at once
	refuse error         // error of Schedule
	wakes  []events.Wake
}

func (b *counter) Store(ctx context.Context, m events.Message, expect uint64) (uint64, error) {
	if b.hold != nil {
		select {
		case <-b.hold:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return b.stock.Store(ctx, m, expect)
}

func (b *counter) Schedule(_ context.Context, w events.Wake) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakes = append(b.wakes, w)
	return b.refuse
}

// looped is a loop of a controller with some sets in its memory, and asks about all of them.
func looped(b bus.Bus, c reconcile.Any, settings Settings, worked func(time.Duration), sets ...*appsv1.ReplicaSet) *Loop {
	return loopedOn(cache.New(), b, c, settings, worked, sets...)
}

// loopedOn is looped on a given memory.
func loopedOn(memory *cache.Cache, b bus.Bus, c reconcile.Any, settings Settings, worked func(time.Duration), sets ...*appsv1.ReplicaSet) *Loop {
	memory.Follow(kinds.ReplicaSets.Kind)
	memory.Follow(kinds.Pods.Kind)
	memory.Register(c.Describe())
	for i, set := range sets {
		memory.Fold(kinds.ReplicaSets.Name, []events.Message{delta(kinds.ReplicaSets.Kind, events.Is, set, uint64(i+1))})
	}
	l := NewLoop(b, c, memory, settings, worked)
	l.engine.Folded(kinds.ReplicaSets.Name)
	l.engine.AskAll()
	return l
}

// runs runs a loop until stop is called, which returns how long that took.
func runs(t *testing.T, l *Loop) (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	synctest.Wait()
	return func() time.Duration {
		began := time.Now()
		cancel()
		running.Wait()
		took := time.Since(began)
		time.Sleep(callTimeout) // virtual: the calls in flight have ended
		return took
	}
}

// A process that stands still between a decision and its storing does not store it: the writers
// would take it for a new one. A repetition, which the writers judge by its decision, and a parked
// turn are stored at any age.
func TestALoopStoresNoOldDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counter{stock: stocked(t, 0)}
		l := looped(b, toy(), Settings{}, func(time.Duration) {})
		decided := l.clock()
		turn := func(of events.Lane, repeats uint64) events.Turn {
			return events.Turn{Controller: "toy", Key: web, Lane: of, Now: decided, Repeats: repeats}
		}
		time.Sleep(callTimeout)
		if sequence, err := l.sendTurn(t.Context(), turn(events.LaneWrite, 0), 0); sequence != 1 || err != nil {
			t.Errorf("a turn that is decided in time is stored at %d, %v; want 1", sequence, err)
		}
		time.Sleep(1)
		if _, err := l.sendTurn(t.Context(), turn(events.LaneWrite, 0), 1); !errors.Is(err, engine.ErrStale) {
			t.Errorf("a turn that was decided too long ago: %v, want %v", err, engine.ErrStale)
		}
		if sequence, err := l.sendTurn(t.Context(), turn(events.LaneWrite, 1), 1); sequence != 2 || err != nil {
			t.Errorf("a repeated turn is stored at %d, %v; want 2", sequence, err)
		}
		if sequence, err := l.sendTurn(t.Context(), turn(events.LanePark, 0), 0); sequence != 3 || err != nil {
			t.Errorf("a parked turn is stored at %d, %v; want 3", sequence, err)
		}
	})
}

// The loop stores the engine's turns, and sets its wakes; it sets a wake again that the bus
// refused.
func TestALoopDoesWhatItsEngineDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, turns := &counter{stock: stocked(t, 0), refuse: errors.New("away")}, atomic.Int64{}
		at := web
		at.Name = "later"
		l := looped(b, toy(), Settings{}, func(time.Duration) { turns.Add(1) }, aSet("web", 1, 1, 0, ""), aSet("later", 2, 0, 0, "wakes"))
		stop := runs(t, l)
		m, there, err := b.At(t.Context(), subject.TurnStream("toy"), 1)
		if err != nil || !there || m.Subject != subject.Turn("toy", events.LaneWrite, web) {
			t.Errorf("the first stored message is on %q (there: %t, %v), want the turn of the key", m.Subject, there, err)
		}
		if w := l.witnesses.get(subject.TurnStream("toy")); w.sequence != 1 || w.subject != m.Subject {
			t.Errorf("the witness of the turns is %+v, want message 1", w)
		}
		if got := l.Tally(); got.Writes != 1 || got.Retries != 1 || turns.Load() < 2 {
			t.Errorf("the engine counts %+v of %d turns, want one write, one retry, and at least 2 turns", got, turns.Load())
		}
		b.mu.Lock()
		b.refuse = nil
		b.mu.Unlock()
		time.Sleep(time.Second) // virtual
		synctest.Wait()
		if n := len(b.wakes); n != 2 || b.wakes[0].Key != at || !b.wakes[0].At.Equal(epoch.Add(time.Hour)) {
			t.Errorf("%d wakes were set, the first %+v, want 2 wakes at the right time", n, b.wakes[0])
		}
		took := stop()
		if storing := l.engine.Storing(); storing != 0 {
			t.Errorf("after the end %d calls are under way, want none", storing)
		}
		if took != 0 {
			t.Errorf("a loop without calls under way ends after %v, want at once", took)
		}
	})
}

// A loop that ends waits for the stores in flight, for at most three seconds.
func TestWhatIsBeingStoredAtTheEndIsAwaited(t *testing.T) {
	for want, release := range map[time.Duration]time.Duration{time.Second: time.Second, 3 * time.Second: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := &counter{stock: stocked(t, 0), hold: make(chan struct{})}
			l := looped(b, toy(), Settings{}, nil, aSet("web", 1, 1, 0, ""))
			stop := runs(t, l)
			time.AfterFunc(release, func() { close(b.hold) })
			if took := stop(); took != want {
				t.Errorf("with a call that ends after %v the loop ends after %v, want %v", release, took, want)
			}
			if stored := l.engine.Storing() == 0; stored != (want == release) {
				t.Errorf("with a call that ends after %v the loop has taken the answer: %t", release, stored)
			}
			time.Sleep(release)
		})
	}
}

// At most 256 calls are in flight, each for at most five seconds.
func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := looped(&counter{stock: stocked(t, 0)}, toy(), Settings{}, nil)
		var begun atomic.Int32
		for range 300 {
			l.call(func(ctx context.Context) func(*engine.Engine) {
				begun.Add(1)
				<-ctx.Done()
				return func(*engine.Engine) {}
			})
		}
		time.Sleep(5*time.Second - 1) // virtual
		if synctest.Wait(); begun.Load() != 256 {
			t.Errorf("%d calls are under way, want 256", begun.Load())
		}
		time.Sleep(1)
		if synctest.Wait(); begun.Load() != 300 || len(l.inbox) != 256 {
			t.Errorf("after five seconds %d calls have begun and %d have ended, want 300 and 256", begun.Load(), len(l.inbox))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
	})
}

// A loop on a slow bus makes no turns in advance: they would be too old to be stored by the time of
// their store. It goes on once the bus has stored some.
func TestALoopWaitsForASlowBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counter{stock: stocked(t, 0), hold: make(chan struct{})}
		var sets []*appsv1.ReplicaSet
		for i := range 3 * maxStoring {
			sets = append(sets, aSet(fmt.Sprint("web-", i), i+1, 1, 0, ""))
		}
		l := looped(b, toy(), Settings{}, nil, sets...)
		stop := runs(t, l)
		time.Sleep(callTimeout / 2) // virtual
		synctest.Wait()
		if most := maxStoring + 1; l.storing < maxStoring || l.storing > most { // a key may store two turns at once
			t.Errorf("%d turns are being stored, want %d to %d", l.storing, maxStoring, most)
		}
		close(b.hold)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := l.Tally().Writes; got != len(sets) || l.storing != 0 {
			t.Errorf("%d of %d write turns are stored, and %d are under way; want all stored", got, len(sets), l.storing)
		}
		stop()
	})
}

// The loop makes turns in bursts, reads its inbox between them, and the changes of a key that
// have arrived by then make one turn.
func TestTurnsAreMadeInBursts(t *testing.T) {
	turns := 0
	var sets []*appsv1.ReplicaSet
	for i := range 130 {
		sets = append(sets, aSet("web"+string(rune('a'+i/26))+string(rune('a'+i%26)), i+1, 0, 0, ""))
	}
	l := looped(&counter{stock: stocked(t, 0)}, toy(), Settings{}, func(time.Duration) { turns++ }, sets...)
	for i, want := range []struct {
		turns int
		busy  bool
	}{{64, true}, {128, true}, {130, false}, {130, false}} {
		if busy := l.runTurns(); busy != want.busy || turns != want.turns {
			t.Errorf("after burst %d there were %d turns, and there is more to do: %t", i+1, turns, busy)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l := looped(&counter{stock: stocked(t, 0)}, toy(), Settings{}, nil)
		for range 10 {
			l.Do(func(d *engine.Engine) { d.Ask(web) })
		}
		stop := runs(t, l)
		if n := l.Tally().Nothing; n != 1 {
			t.Errorf("ten demands for one key made %d turns, want 1", n)
		}
		stop()
	})
}

// During a turn the loop reports how long it has taken.
func TestALoopSaysHowLongATurnGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *Loop
		var busy, took time.Duration
		slow := toy()
		slow.Decide = func(cachetest.View, time.Time) reconcile.Decision {
			time.Sleep(time.Second) // virtual
			busy = l.Busy()
			return reconcile.Nothing("it is as it should be")
		}
		l = looped(&counter{stock: stocked(t, 0)}, slow, Settings{}, func(d time.Duration) { took = d }, aSet("web", 1, 0, 0, ""))
		stop := runs(t, l)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if busy != time.Second || took != time.Second || l.Busy() != 0 {
			t.Errorf("the loop is busy for %v in the turn and for %v after it, and the turn took %v; want 1s, 0, 1s", busy, l.Busy(), took)
		}
		stop()
	})
}

// A controller that reads every kind decides nothing before the kinds have been discovered.
func TestALoopOfEveryKindWaitsForTheDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := looped(&counter{stock: stocked(t, 0)}, spread(), Settings{}, nil)
		stop := runs(t, l)
		if l.HasOpened() {
			t.Error("the loop has opened before the kinds were discovered")
		}
		l.Do(func(d *engine.Engine) { d.Discover(); d.Discovered() })
		if synctest.Wait(); !l.HasOpened() {
			t.Error("the loop has not opened after the kinds were discovered")
		}
		stop()
	})
}

// An open engine's loop computes ten times a second how far changes have been dealt with.
func TestHowOftenItIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := cache.New()
		l := loopedOn(memory, &counter{stock: stocked(t, 0)}, toy(), Settings{}, nil)
		l.engine.Shut("pods")
		is := func(what string, version int, want uint64, stale bool) {
			t.Helper()
			if version > 0 {
				m := delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", version, 0, 0, ""), uint64(version))
				memory.Fold(kinds.ReplicaSets.Name, []events.Message{m})
				l.engine.Folded(kinds.ReplicaSets.Name)
				l.runTurns()
			}
			l.publish()
			if got := l.processedUpTo(kinds.ReplicaSets.Name); got != want || l.stale != stale {
				t.Errorf("%s: the log is dealt with up to %d (stale: %t)", what, got, l.stale)
			}
		}
		is("shut", 0, 0, false)
		l.engine.Open("pods")
		is("open", 1, 1, false)
		is("at once", 2, 1, true)
		time.Sleep(100*time.Millisecond - 1) // virtual
		is("too early", 0, 1, true)
		time.Sleep(1)
		is("in time", 0, 2, false)
	})
}

// A running loop answers questions about the present state of its engine.
func TestALoopAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := cache.New()
		l := loopedOn(memory, &counter{stock: stocked(t, 0)}, toy(), Settings{}, nil, aSet("web", 1, 1, 0, ""))
		l.Shut("pods")
		stop := runs(t, l)
		m := delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 0, ""), 2)
		memory.Fold(kinds.ReplicaSets.Name, []events.Message{m})
		l.Do(func(d *engine.Engine) { d.Folded(kinds.ReplicaSets.Name) })
		synctest.Wait()
		if s, stalled, known := l.Stall(t.Context()); stalled || !known {
			t.Errorf("the loop reports the stall %+v at first (known: %t), want none", s, known)
		}
		time.Sleep(report.StallAfter) // virtual
		if k, ok := l.Key(t.Context(), web); !ok || !k.Known || k.Waits != report.NotRead {
			t.Errorf("the state of the key is %+v, %t; want that it waits because pods are not read", k, ok)
		}
		if w, ok := l.Waiting(t.Context()); !ok || w[report.KeysWait].Oldest != web {
			t.Errorf("the waiting keys are %+v, %t; want web as the oldest", w, ok)
		}
		if b, ok := l.Backlog(t.Context()); !ok || b[kinds.ReplicaSets.Name].Sequence != 1 {
			t.Errorf("the backlog is %+v, %t; want the log of ReplicaSets at 1", b, ok)
		}
		if s, stalled, known := l.Stall(t.Context()); !known || !stalled || s.Condition != report.NotRead || s.Controller != "toy" {
			t.Errorf("the stall is %+v, %t (known: %t); want that pods are not read", s, stalled, known)
		}
		l.Own(0)
		if k, ok := l.Key(t.Context(), web); !ok || !k.Checks[2].Holds || k.Checks[2].Condition != report.OtherReplica {
			t.Errorf("the state of a key of another replica has the checks %+v, %t; want OtherReplica as the third", k.Checks, ok)
		}
		l.setBusy(time.Now().Add(-report.StallAfter))
		if s, stalled, known := l.Stall(t.Context()); !known || !stalled || s.Condition != report.Deciding {
			t.Errorf("the stall in a long turn is %+v, %t (known: %t); want Deciding", s, stalled, known)
		}
		stop()
	})
}

// An engine that asks for the end of a kind gets that of the kind's log.
func TestALoopTellsWhereAKindEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := cache.New()
		l := loopedOn(memory, &counter{stock: stocked(t, 3)}, toy(), Settings{}, nil, aSet("web", 1, 1, 0, ""))
		remember(t, l, 10)
		fold := func(at uint64) {
			memory.Fold("pods", []events.Message{markAt(kinds.Pods.Kind, "9", at)})
			l.engine.Folded("pods")
		}
		unseen := func() []events.Ref { return l.engine.Key(web).Write.Unseen }
		// Pod p was created and deleted, and the log has kept neither.
		l.engine.Outcome(1, events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{{Status: events.Applied, Ref: podOf("p"), Version: "9"}}})
		fold(2)
		l.engine.Advance(l.clock().Add(2 * time.Second)) // the patience
		(<-l.inbox)()
		if got := unseen(); len(got) != 1 {
			t.Errorf("before the end of the log is folded the key waits for the effects %v, want one", got)
		}
		if fold(3); len(unseen()) != 0 {
			t.Errorf("after the end of the log is folded the key waits for the effects %v, want none", unseen())
		}
	})
}

// The loop reports a suspicion of its engine to the watchers in the controller's name. If it
// cannot, the loop is in trouble.
func TestASuspicionIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stocked(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		var heard []report.Damage
		go func() {
			_ = b.Listen(ctx, report.DamageTopic, func(data []byte) {
				if d, ok := report.DecodeDamage(data); ok {
					heard = append(heard, d)
				}
			})
		}()
		synctest.Wait()
		gone := report.Damage{Kind: "pods", Suspected: true, About: podOf("p"), UID: "u", Removed: true}
		l := looped(&counter{stock: b}, toy(), Settings{}, nil)
		l.settings.Suspect(gone)
		synctest.Wait()
		if len(heard) != 1 || heard[0].By != "toy" || heard[0].Kind != "pods" || l.Trouble() != nil {
			t.Errorf("the reported suspicions are %+v, and the trouble is %v; want one, by the controller, and no trouble", heard, l.Trouble())
		}
		l = looped(failing{stock: b, state: errors.New("away")}, toy(), Settings{}, nil)
		l.settings.Suspect(gone)
		synctest.Wait()
		if err := l.Trouble(); err == nil || !strings.Contains(err.Error(), "report a suspicion about pods") || len(heard) != 1 {
			t.Errorf("with a bus that is away the trouble is %v, and %d suspicions were reported; want the failed report, and no further one", err, len(heard))
		}
		cancel()
		synctest.Wait()
	})
}

// Shutter returns when the running engine is shut.
func TestAnEngineIsShutWhenItIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := cache.New()
		m.Register(toy().Describe())
		l := NewLoop(&shrunk{}, toy(), m, Settings{}, nil)
		shut := false
		go func() { l.ShutNow("pods"); shut = true }()
		synctest.Wait()
		if shut {
			t.Error("ShutNow returns before the loop runs")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		synctest.Wait()
		if !shut || !isShut(l, "pods") {
			t.Error("the kind is not shut when the loop runs")
		}
		cancel()
		synctest.Wait()
	})
}

// A decision that does not end keeps the engine from reporting it: the loop does.
func TestADecisionThatDoesNotEndStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := cache.New()
		memory.Register(toy().Describe())
		l := NewLoop(&torn{}, toy(), memory, Settings{}, nil)
		l.publish()
		ask := func() (report.Stall, bool) {
			s, stalled, _ := l.stalled()
			return s, stalled
		}
		l.setBusy(time.Now())
		time.Sleep(report.StallAfter - 1) // virtual
		if s, stalled := ask(); stalled {
			t.Errorf("the loop reports the stall %+v before the turn has taken that long", s)
		}
		time.Sleep(1)
		if s, stalled := ask(); !stalled || s.Condition != report.Deciding {
			t.Errorf("the stall is %+v (%t), want Deciding", s, stalled)
		}
		l.publish()
		for range 200 { // like a stream that cannot be read
			l.fail(errors.New("no such stream"))
			time.Sleep(200 * time.Millisecond)
		}
		if s, stalled := ask(); !stalled || s.Condition != report.BusRefuses || s.Detail != "no such stream" {
			t.Errorf("the stall is %+v (%t), want BusRefuses with \"no such stream\"", s, stalled)
		}
		time.Sleep(recent)
		if s, stalled := ask(); stalled {
			t.Errorf("the loop still reports the stall %+v when the failures are over", s)
		}
	})
}

// remember gives the engine of a loop the past of the key web: a turn of the write lane at a
// sequence, without an outcome. The key's set must want something that it does not have.
func remember(t *testing.T, l *Loop, turn uint64) {
	t.Helper()
	l.engine.Ask(web)
	if !recalls(t, l, turn) {
		t.Fatal("the engine does not recall a key that it does not know")
	}
}

// recalls lets the engine work, and reports whether it recalls a key. It answers with the past that
// remember gives.
func recalls(t *testing.T, l *Loop, turn uint64) bool {
	t.Helper()
	for l.engine.Step() {
	}
	sought := l.sought
	l.sought = nil
	for _, at := range sought {
		past := engine.Past{}
		if at.lane == events.LaneWrite {
			past = engine.Past{Sequence: turn, Turn: &events.Turn{Controller: "toy", Key: at.key, Lane: at.lane}}
		}
		l.engine.Recalled(at.key, at.lane, past, nil)
	}
	for l.engine.Step() {
	}
	return len(sought) > 0
}

// engines guards the engines whose inbox [hear] runs.
var engines sync.Mutex

// firstCheck is the first of the conditions that a loop's engine waits for.
func firstCheck(l *Loop) report.KeyCheck {
	engines.Lock()
	defer engines.Unlock()
	return l.engine.Key(events.Key{}).Checks[0]
}

// isShut reports whether a loop's engine is shut for a kind.
func isShut(l *Loop, kind string) bool {
	first := firstCheck(l)
	shut := first.Condition == report.NotRead || first.Condition == report.EpochNotTold || first.Condition == report.CacheInconsistent
	return shut && slices.Contains(strings.Split(first.About, ", "), kind)
}

// forgotten reports whether a loop's engine is shut for a kind that was forgotten.
func forgotten(l *Loop, kind string) bool {
	return isShut(l, kind) && firstCheck(l).Condition == report.CacheInconsistent
}
