package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// inTime runs a test with a bus in virtual time.
func inTime(t *testing.T, test func(t *testing.T, b *memory.Bus)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		test(t, b)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A membership's answers follow from the heartbeats that it hears. Before it hears any, it
// claims nothing, and says why; an unfit replica counts as live and not as fit.
func TestWhatAMembershipAnswers(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		unheard := New(Config{Bus: b, Service: "toy", ID: "a"})
		if err := unheard.Check(); !errors.Is(err, errUnheard) || unheard.ID() != "a" || unheard.Members() != 1 || unheard.First("work") || unheard.Unfit() {
			t.Errorf("one that does not run says %v; %d are there", err, unheard.Members())
		}
		a := join(t, b, "a")
		defer a.leave()
		pass(silence - 1)
		if err := a.Check(); err == nil || errors.Is(err, errUnheard) || !strings.Contains(err.Error(), "480ms") || a.Unfit() {
			t.Errorf("one that is fresh says %v", err)
		}
		pass(2 * heartbeat)
		if err := a.Check(); err != nil || a.Unfit() || a.Others() != 0 || a.Members() != 1 || a.Holder("work") != "a" {
			t.Errorf("one that is alone says %v; %d others are fit, and %s has the work", err, a.Others(), a.Holder("work"))
		}
		c := join(t, b, "c")
		defer c.leave()
		pass(2 * silence)
		if a.Others() != 1 || a.Members() != 2 || a.Holder("work") != c.Holder("work") || a.First("work") == c.First("work") {
			t.Errorf("of two members a knows %d others that are fit and %d in all; the work is of %s and of %s, want of the same", a.Others(), a.Members(), a.Holder("work"), c.Holder("work"))
		}
		c.unfit.Store(true)
		pass(2 * heartbeat)
		if a.Others() != 0 || a.Members() != 2 || a.Holder("work") != "a" || !c.Unfit() || a.Unfit() || c.Check() != nil {
			t.Errorf("beside one that is unfit %d others are fit, %d are there, and %s has the work", a.Others(), a.Members(), a.Holder("work"))
		}
		a.cut.Store(true)
		pass(silence - heartbeat - 1) // the last heartbeat may be as old as the interval
		if err := a.Check(); err != nil {
			t.Errorf("one that does not hear itself for less than 480 ms says too soon: %v", err)
		}
		pass(2 * heartbeat)
		if err := a.Check(); !errors.Is(err, errUnheard) {
			t.Errorf("one that does not hear itself says %v", err)
		}
	})
}

// A replica publishes a heartbeat every 120 ms among others, and once a second alone; it
// publishes changes at once, and a goodbye at the end.
func TestHowOftenAHeartbeatIsSaid(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		a := join(t, b, "a")
		pass(2 * time.Second)
		said := func(during time.Duration) int64 {
			before := a.said.Load()
			pass(during)
			return a.said.Load() - before
		}
		if got := said(10 * time.Second); got != 10 {
			t.Errorf("alone it says in 10 s %d times that it is there", got)
		}
		c := join(t, b, "c")
		pass(2 * silence)
		if got := said(12 * time.Second); got < 99 || got > 101 {
			t.Errorf("among others a replica announces itself %d times in 12 s", got)
		}
		a.unfit.Store(true)
		if got := said(glance); got < 1 {
			t.Error("a replica does not announce at once that it is unfit")
		}
		c.leave()
		a.unfit.Store(false)
		pass(time.Second)
		before := a.said.Load()
		if a.leave(); a.said.Load() != before+1 {
			t.Errorf("at the end it says something %d times", a.said.Load()-before)
		}
	})
}

// A replica whose heartbeat is late by more than a glance is asked for by a replica that hears
// its own.
func TestWhoseHeartbeatIsLate(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		r := New(Config{Bus: b, Service: "toy", ID: "self"})
		start := time.Now()
		r.book.echo = start.Add(time.Hour) // it hears itself
		for id, heard := range map[string]time.Duration{"a": 0, "b": glance, "c": heartbeat} {
			r.book.others[id] = member{heard: start.Add(heard)}
		}
		for _, step := range []struct {
			at   time.Duration
			want []string
		}{{late - 1, nil}, {late, []string{"a"}}, {late + glance - 1, []string{"a"}}, {late + glance, []string{"a", "b"}}, {late + heartbeat, []string{"a", "b", "c"}}} {
			time.Sleep(time.Until(start.Add(step.at)))
			got := r.overdue()
			if slices.Sort(got); !slices.Equal(got, step.want) {
				t.Errorf("after %v the heartbeats are late of %v, want %v", step.at, got, step.want)
			}
		}
		for ago, want := range map[time.Duration]int{late - 1: 3, late: 0} {
			if r.book.echo = time.Now().Add(-ago); len(r.overdue()) != want {
				t.Errorf("by one that heard itself %v ago %v are late", ago, r.overdue())
			}
		}
	})
}

// Each replica listens on its own topic, derived from its group and its ID.
func TestEachReplicaHasATopic(t *testing.T) {
	topic := func(service, group, id string) string {
		return New(Config{Service: service, Group: group, ID: "x"}).topic(id)
	}
	one := topic("toy", "g", "a")
	if !strings.HasPrefix(one, "toy.") || strings.Count(one, ".") != 1 || len(one) != len("toy.")+16 || one != topic("toy", "g", "a") {
		t.Errorf("the topic is %s, want toy. and a hash", one)
	}
	all := []string{one, topic("toy", "g", "b"), topic("toy", "h", "a"), topic("toy", "", "a"), topic("toy", "ga", ""), topic("other", "g", "a")}
	if slices.Sort(all); len(slices.Compact(all)) != 6 {
		t.Errorf("two listen on one topic: %v", all)
	}
}

// While Listen fails, the membership retries it at the interval of heartbeats, on both topics.
func TestABusThatCannotBeHeard(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		m := bustest.Wrap(b).Fail(bustest.Listen, errors.New("it cannot be heard"))
		time.AfterFunc(time.Second, func() { m.Fail(bustest.Listen, nil) })
		r := New(Config{Bus: m, Service: "toy", ID: "a"})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		pass(3 * time.Second)
		for _, topic := range []string{"toy", r.topic("a")} {
			if got := m.Count(bustest.Listen, topic); got != 10 { // at 0, 120, ... 1080 ms
				t.Errorf("the topic %s was subscribed %d times, want 10", topic, got)
			}
		}
		if err := r.Check(); err != nil {
			t.Errorf("the check when it can be heard again: %v, want nil", err)
		}
		stop()
		<-ended
	})
}

// The bus has as long as the interval of heartbeats to say that a replica is gone; after that,
// only the replica's silence counts.
func TestABusThatDoesNotSayWhoIsAbsent(t *testing.T) {
	for takes, by := range map[time.Duration]time.Duration{heartbeat - 1: late + 2*heartbeat, heartbeat + 1: silence + heartbeat} {
		inTime(t, func(t *testing.T, b *memory.Bus) {
			slow := bustest.Wrap(b)
			slow.OnNoListeners = func(ctx context.Context, topic string) bool {
				select {
				case <-ctx.Done():
					return false
				case <-time.After(takes):
					return b.NoListeners(ctx, topic)
				}
			}
			r := New(Config{Bus: slow, Service: "toy", ID: "a"})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); r.Run(ctx) }()
			c := join(t, b, "c")
			pass(2 * silence)
			c.cut.Store(true)
			c.leave()
			left := time.Now()
			for r.Members() > 1 && time.Since(left) < time.Minute {
				pass(glance / 4)
			}
			if took := time.Since(left); took > by || takes > heartbeat && took < silence-heartbeat {
				t.Errorf("where the bus takes %v the other is there for %v, want %v at most", takes, took, by)
			}
			stop()
			<-ended
		})
	}
}

// A probe ends with its answer: its context is cancelled. An answer after 400 ms is late.
func TestAQuestionIsOverWhenItIsAnswered(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		var asked []context.Context
		r := New(Config{Bus: b, Service: "toy", ID: "a", Reach: func(ctx context.Context) error {
			asked = append(asked, ctx)
			return nil
		}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		pass(time.Second)
		if len(asked) == 0 || !errors.Is(asked[0].Err(), context.Canceled) {
			t.Errorf("%d questions are asked, and the first goes on after its answer", len(asked))
		}
		stop()
		<-ended
	})
	now := time.Now()
	for takes, doubts := range map[time.Duration]bool{400*time.Millisecond - 1: false, 400 * time.Millisecond: true} {
		var c contact
		if c.ask(now); c.doubts(now.Add(takes)) != doubts {
			t.Errorf("without an answer for %v the contact is in doubt: %t, want %t", takes, !doubts, doubts)
		}
	}
}

// A silent replica is remembered for as long as its requests may linger.
func TestForHowLongSilenceIsRemembered(t *testing.T) {
	now := time.Now()
	for since, remembered := range map[time.Duration]int{bus.Lingering - 1: 1, bus.Lingering: 0} {
		b := newBook("a")
		b.since, b.echo, b.patience, b.silent["b"] = now.Add(-time.Hour), now, silence, now.Add(-since)
		if b.turn(now, true); len(b.silent) != remembered {
			t.Errorf("after %v %d are remembered, want %d", since, len(b.silent), remembered)
		}
	}
}

// Watch calls tell at once for the first sixteen changes, and four times a second for more.
func TestAWatchIsToldSeldom(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		r := New(Config{Bus: b, Service: "toy", ID: "a"})
		ctx, stop := context.WithCancel(t.Context())
		var told atomic.Int64
		ended := make(chan struct{})
		go func() { defer close(ended); r.Watch(ctx, func() { told.Add(1) }) }()
		change := func(n int) int64 {
			before := told.Load()
			for range n {
				synctest.Wait()
				r.tell()
			}
			synctest.Wait()
			return told.Load() - before
		}
		if got := change(0); told.Load() != 1 || got > 1 {
			t.Errorf("at first %d changes are reported, want 1", told.Load())
		}
		if got := change(30); got != 16 {
			t.Errorf("of thirty changes at once %d are reported, want 16", got)
		}
		before := told.Load()
		for range 100 {
			pass(100 * time.Millisecond)
			r.tell()
		}
		if got := told.Load() - before; got < 38 || got > 41 {
			t.Errorf("of the changes in 10 s %d are reported, want 40", got)
		}
		pass(time.Hour)
		if got := change(30); got != 16 {
			t.Errorf("after a quiet time it is told at once %d times, want 16", got)
		}
		stop()
		<-ended
	})
}

// A generated ID contains the host and the process id, and is different each time.
func TestANameIsMadeUp(t *testing.T) {
	one, other := New(Config{}).ID(), New(Config{}).ID()
	if one == other || !proper(one) || strings.Count(one, "-") < 2 {
		t.Errorf("the names are %s and %s", one, other)
	}
	for _, id := range []string{"a b", "a\n", "ä", strings.Repeat("a", 257)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a replica is called %q", id)
				}
			}()
			New(Config{ID: id})
		}()
	}
	if r := New(Config{ID: strings.Repeat("a", 256)}); !r.config.Fit() || !r.config.Signed(nil) || string(r.config.Sign([]byte("x"))) != "x" {
		t.Error("by itself a replica is not fit, or its heartbeats are not as they are")
	}
}

// A heartbeat of another group does not count, nor does one whose standing is not ready, unfit
// or fresh.
func TestWhoseHeartbeatsCount(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		r := New(Config{Bus: b, Service: "toy", Group: "g", ID: "a"})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		pass(time.Second)
		for text, want := range map[string]int{
			`{"id":"b","group":"g"}`: 2, `{"id":"b","group":"g","standing":1}`: 2, `{"id":"b","group":"g","standing":2}`: 2, `{"id":"b"}`: 1, `{"id":"b","group":"h"}`: 1,
			`{"id":"b","group":"g","standing":3}`: 1, `{"id":"b","group":"g","standing":-1}`: 1, `{"id":"b","group":"g","bye":true}`: 1, `{`: 1, `{"id":"","group":"g"}`: 1,
		} {
			if err := b.Broadcast("toy", []byte(text)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := r.Members(); got != want {
				t.Errorf("after %s %d are there, want %d", text, got, want)
			}
			if err := b.Broadcast("toy", []byte(`{"id":"b","group":"g","bye":true}`)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		stop()
		<-ended
	})
}

// The hash orders replicas of equal standing, and the ID those of equal hash: so all replicas
// have the same order.
func TestEveryoneOrdersReplicasAlike(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	for i, standings := range [][]standing{{ready, ready, ready, ready, ready}, {unfit, ready, fresh, ready, unfit}, {fresh, fresh, unfit, unfit, unfit}} {
		var books []*book
		for n, id := range names {
			b := newBook(id)
			b.standing, b.seen = standings[n], map[string]standing{}
			for m, other := range names {
				if m != n {
					b.seen[other] = standings[m]
				}
			}
			books = append(books, b)
		}
		for w := range 50 {
			work := fmt.Sprint("work-", w)
			ranks := map[int]string{}
			for _, b := range books {
				ranks[b.rank(work)] = b.id
			}
			if len(ranks) != len(names) {
				t.Fatalf("with the standings %d two replicas have the same rank for %s: %v", i, work, ranks)
			}
			for _, b := range books {
				if got := b.first(work); got != ranks[0] {
					t.Fatalf("with the standings %d, work %s: by %s it falls to %s, want to the replica of rank 0, %s", i, b.id, work, got, ranks[0])
				}
			}
			best := slices.Index(names, ranks[0])
			if standings[best] != slices.Min(standings) {
				t.Fatalf("with the standings %d work %s falls to a replica of standing %d, want of the lowest", i, work, standings[best])
			}
		}
	}
}

// A replica that is alone does not look for silent ones until it has company.
func TestAloneNoReplicaIsMissed(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		a := join(t, b, "a")
		defer a.leave()
		pass(3 * solitude)
		began, looked := time.Now(), make(chan time.Duration, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			if a.awaitGlance(ctx) {
				looked <- time.Since(began)
			}
		}()
		pass(time.Hour)
		c := join(t, b, "c")
		defer c.leave()
		pass(heartbeat)
		if took := <-looked; took < time.Hour || took > time.Hour+heartbeat {
			t.Errorf("alone a replica looks for others after %v, want an hour", took)
		}
		began = time.Now()
		if !a.awaitGlance(ctx) || time.Since(began) != glance {
			t.Errorf("in company a replica looks after %v, want a glance", time.Since(began))
		}
		if stop(); a.awaitGlance(ctx) {
			t.Error("awaitGlance is true after its end")
		}
	})
}
