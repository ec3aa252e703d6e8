package watcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// pretends sends heartbeats of a watcher of a scope that watches nothing, until stop is called.
func pretends(t *testing.T, b bus.Bus, id string, scope Scope) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			_ = b.Broadcast("watchers", fmt.Appendf(nil, `{"id":%q,"group":%q}`, id, scope.group()))
			sleep.For(ctx, heartbeat)
		}
	}()
	return cancel
}

// told counts the messages on a topic.
func (c *cable) told(what string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, said := range c.said {
		n += count(string(said) == what)
	}
	return n
}

// marksOf counts the marks in the log of a kind.
func marksOf(t *testing.T, b bus.Bus, kind kinds.Name) (n int) {
	t.Helper()
	for _, d := range watchertest.LogOfKind(t, b, kind) {
		n += count(d.Op == events.Mark)
	}
	return n
}

// A watcher takes a kind after five seconds if the watcher that it falls to does not watch it,
// until another one has appended to its log. In the second half of that time a check fails.
func TestAKindThatAnotherDoesNotWatchIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		b := newCable(memory.New(memory.Options{}))
		leave := pretends(t, b.Bus, "mallory", All)
		began := time.Now()
		service, _ := start(t, s, b, "one", many)
		time.Sleep(2 * time.Second) // virtual
		var theirs []kinds.Name
		for _, k := range resources {
			if service.members.Holder(string(k)) == "mallory" {
				theirs = append(theirs, k)
			}
			if service.watches(k) != (service.members.Holder(string(k)) == "one") {
				t.Errorf("%s is watched: %t, and falls to %s", k, service.watches(k), service.members.Holder(string(k)))
			}
		}
		if len(theirs) == 0 || len(theirs) == len(resources) {
			t.Fatalf("%d of %d kinds fall to the other watcher", len(theirs), len(resources))
		}
		when := func(holds func() bool) time.Duration {
			watchertest.Until(t, holds)
			return time.Since(began).Round(100 * time.Millisecond)
		}
		unshown := when(func() bool { return service.Checks()["watched"]() != nil })
		if err := service.checkWatched(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d kinds fall to other watchers", len(theirs))) {
			t.Errorf("the check says %v, of %d kinds", err, len(theirs))
		}
		taken := when(func() bool {
			return !slices.ContainsFunc(theirs, func(k kinds.Name) bool { return !service.watches(k) })
		})
		if taken-unshown != takeOverAfter/2 || taken < takeOverAfter || taken > takeOverAfter+2*time.Second {
			t.Errorf("the check fails after %v, and the kinds are watched after %v", unshown, taken)
		}
		time.Sleep(guardEvery)
		if err := service.checkWatched(); err != nil {
			t.Errorf("the check with all kinds watched: %v, want nil", err)
		}
		if got := testutil.ToFloat64(service.metrics.taken); got != float64(len(theirs)) {
			t.Errorf("%v kinds are counted as taken, want %d", got, len(theirs))
		}
		time.Sleep(time.Second)
		if !service.Synced() {
			t.Errorf("the watcher is not synced: %v", service.checkSynced())
		}
		for _, k := range resources {
			if got := b.told(string(k)); got != count(slices.Contains(theirs, k))*(int(takeOverAfter/guardEvery)+1) {
				t.Errorf("%s is asked for %d times", k, got)
			}
		}

		first := theirs[0]
		mark := subject.Message(events.Delta{Kind: first, Op: events.Mark, ResourceVersion: "1"})
		other, err := b.Append(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Append(t.Context(), events.Seal(mark)); err != nil {
			t.Fatal(err)
		}
		s.Edit(string(first), "a", func(*corev1.Pod) {})
		if time.Sleep(time.Second); service.watches(first) {
			t.Errorf("%s is watched, although another watcher has appended to its log", first)
		}
		time.Sleep(guardEvery)
		if got := testutil.ToFloat64(service.metrics.taken); got != float64(len(theirs)-1) {
			t.Errorf("%v kinds are counted as taken, want %d", got, len(theirs)-1)
		}
		if time.Sleep(takeOverAfter + 2*guardEvery); !service.watches(first) || !slices.Contains(watchertest.Ops(watchertest.LogOfKind(t, b, first)), "is a") {
			t.Errorf("%s is not watched again, and its log tells %v", first, watchertest.Ops(watchertest.LogOfKind(t, b, first)))
		}
		leave()
		time.Sleep(2 * time.Second)
		if got := testutil.ToFloat64(service.metrics.taken); got != 0 || service.members.Others() != 0 {
			t.Errorf("%v kinds are counted as taken beside %d watchers", got, service.members.Others())
		}
	})
}

// A watcher shows that it watches a kind when another one asks, at most once in two seconds.
func TestThatAKindIsWatchedIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		b := memory.New(memory.Options{})
		start(t, s, b, "one")
		time.Sleep(5 * time.Second) // virtual
		if got := marksOf(t, b, "pods"); got != 1 {
			t.Errorf("before any question there are %d marks, want 1", got)
		}
		var shown []time.Duration
		for began, marks := time.Now(), 1; time.Since(began) < 9*time.Second; time.Sleep(100 * time.Millisecond) {
			for _, kind := range []string{"pods", "nodes", ""} {
				if err := b.Broadcast(watchedTopic, []byte(kind)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if now := marksOf(t, b, "pods"); now != marks {
				shown, marks = append(shown, time.Since(began)), now
			}
		}
		watchertest.InTime(t, "it is shown", shown, every2s(0, 8*time.Second)...)
	})
}

// A watcher asks a holder whose log stands still after one and a half seconds, and not before.
func TestAHolderThatStandsStillIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := recorded(t, 1)
		c := newCable(a)
		service := &Service{config: Config{Bus: c}}
		held := map[kinds.Name]*kindGuard{"pods": {holder: "x", shown: true}}
		witnesses := map[string]*replicaLog{}
		asks := func() int {
			service.checkReplicas(t.Context(), held, witnesses)
			return len(c.said)
		}
		if got := asks(); got != 0 {
			t.Errorf("at first the watcher is asked %d times", got)
		}
		time.Sleep(askAfter - 1) // virtual
		if got := asks(); got != 0 {
			t.Errorf("before 1.5 s are over the watcher is asked %d times, want 0", got)
		}
		time.Sleep(1)
		if got := asks(); got != 1 || string(c.said[0]) != "pods" {
			t.Errorf("after 1.5 s the watcher is asked %d times: %s; want once, about pods", got, c.said)
		}
		a.Fail(bustest.StreamState, away, logPods)
		time.Sleep(unshownAfter)
		if asks(); len(held) != 1 {
			t.Error("a bus that is away counts as a watcher that is")
		}
		a.Fail(bustest.StreamState, nil, logPods)
		if got := asks(); got != 1 || len(held) != 1 {
			t.Errorf("when the bus is back the watcher is asked %d times, want 1", got)
		}
	})
}

// A watcher gives up a taken kind once.
func TestAKindIsGivenUpOnce(t *testing.T) {
	t.Parallel()
	service := &Service{taken: map[kinds.Name]bool{"pods": true}, changed: make(chan struct{}, 1)}
	service.giveUpTaken("nodes")
	if len(service.changed) != 0 || !service.taken["pods"] {
		t.Error("a kind is given up that was not taken")
	}
	if service.giveUpTaken("pods"); len(service.changed) != 1 || service.taken["pods"] {
		t.Error("a kind that was taken is not given up")
	}
	<-service.changed
	if service.take("pods"); len(service.changed) != 1 || !service.taken["pods"] {
		t.Error("a kind is not taken")
	}
	if service.unshownKinds = 1; service.checkWatched() == nil {
		t.Error("one kind that is not shown to be watched is none")
	}
}

// A watcher asks about a kind until the holder has shown itself, and not after that.
func TestAHolderIsChallenged(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 1)
	s, _ := start(t, watchertest.Serve(t), memory.New(memory.Options{}), "one")
	service := &Service{config: Config{Bus: a}, members: s.members}
	g := service.askWatcher(t.Context(), "pods", nil)
	if g == nil || g.shown || g.from != 2 {
		t.Fatalf("the first guard is %+v", g)
	}
	since := g.since
	if g = service.askWatcher(t.Context(), "pods", g); g.shown || !g.since.Equal(since) {
		t.Errorf("without a sign the guard is %+v, want it since the beginning", g)
	}
	if err := k.mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g = service.askWatcher(t.Context(), "pods", g); !g.shown {
		t.Errorf("after a sign the guard is %+v, want it shown", g)
	}
	a.Fail(bustest.StreamState, away, logPods)
	if again := service.askWatcher(t.Context(), "pods", g); again != g {
		t.Errorf("a guard that was shown is asked again: %+v", again)
	}
	if none := service.askWatcher(t.Context(), "pods", nil); none != nil {
		t.Errorf("on a bus that is away the guard is %+v, want none", none)
	}
	a.Fail(bustest.StreamState, nil, logPods)
	if other := service.askWatcher(t.Context(), "pods", &kindGuard{holder: "other", shown: true, from: 9}); other.shown || other.from != 3 {
		t.Errorf("the guard of another holder is %+v, want not shown, from 3", other)
	}
}

// One of the kinds that a holder has shown stands for all of them; when its log stands still, the
// watcher doubts all.
func TestOneKindStandsForItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 1)
		service := &Service{config: Config{Bus: a}}
		held := map[kinds.Name]*kindGuard{"pods": {holder: "x", shown: true}, "services": {holder: "x", shown: true}, "nodes": {holder: "y"}}
		witnesses := map[string]*replicaLog{}
		hear := func() { service.checkReplicas(t.Context(), held, witnesses) }
		hear()
		if w := witnesses["x"]; len(witnesses) != 1 || w.kind != "pods" || w.end != 2 {
			t.Fatalf("the witnesses are %+v", witnesses)
		}
		time.Sleep(unshownAfter - 1) // virtual
		if hear(); len(held) != 3 {
			t.Errorf("before three seconds are over %d kinds are held, want 3", len(held))
		}
		if err := k.mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		hear()
		time.Sleep(unshownAfter - 1)
		if hear(); len(held) != 3 {
			t.Errorf("after a sign %d kinds are held, want 3", len(held))
		}
		time.Sleep(1)
		if hear(); len(held) != 1 || held["nodes"] == nil {
			t.Errorf("after three seconds of silence %d kinds are held, want nodes alone", len(held))
		}
		if hear(); len(witnesses) != 0 {
			t.Errorf("without any sign the witnesses are %v, want none", witnesses)
		}
	})
}
