package kindlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/internal/podlog"
)

// asked is a bus that counts requests and has one mark of pods at its end.
type asked struct {
	bus.Bus
	epoch, last    uint64
	answers        chan struct{} // one for each request for a stream's state; nil: at once
	created        time.Time
	states, bodies atomic.Int32
}

func (a *asked) StreamState(context.Context, string) (bus.State, error) {
	a.states.Add(1)
	if a.answers != nil {
		<-a.answers
	}
	return bus.State{First: 1, Last: a.last, Messages: 1, Created: a.created}, nil
}

func (a *asked) At(context.Context, string, uint64) (events.Message, bool, error) {
	a.bodies.Add(1)
	m := subject.Message(events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "1", Epoch: a.epoch})
	return m, true, nil
}

// TestAnEpochIsReadWhenTheStateHasMoved: a message is read once.
func TestAnEpochIsReadWhenTheStateHasMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a lookup is cached for a second
		b := &asked{epoch: 1, last: 5}
		e := NewEpochs(b)
		is := func(epoch uint64, bodies int32) {
			t.Helper()
			e.recent(kinds.Pods.Name)
			now, err := e.lookUp(t.Context(), kinds.Pods.Name)
			if err != nil || !now.ok || now.epoch != epoch || b.bodies.Load() != bodies {
				t.Errorf("the epoch is %+v, %v, after reading %d messages; want %d after %d", now, err, b.bodies.Load(), epoch, bodies)
			}
			if _, known := e.recent(kinds.Pods.Name); !known {
				t.Error("the epoch that was just looked up is not cached")
			}
		}
		is(1, 1)
		is(1, 1)
		b.epoch, b.last = 2, 6
		is(2, 2)
		b.epoch, b.created = 3, time.Now() // the stream was recreated, with as many messages
		is(3, 3)
		b.epoch, b.last = 2, 7 // a stream that lags
		is(3, 4)
	})
}

// TestATurnThatRestsOnManyKindsLooksAtThemTogether: the lookups for a turn that rests on many
// kinds run concurrently.
func TestATurnThatRestsOnManyKindsLooksAtThemTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &asked{epoch: 1, last: 5, answers: make(chan struct{})}
		e := NewEpochs(b)
		many := []kinds.Name{kinds.Pods.Name, kinds.Jobs.Name, kinds.Nodes.Name}
		done := make(chan events.Epochs)
		go func() {
			found, err := e.OfKinds(t.Context(), many)
			if err != nil {
				t.Error(err)
			}
			done <- found
		}()
		synctest.Wait()
		if asked := int(b.states.Load()); asked != len(many) {
			t.Errorf("%d kinds of %d are asked for", asked, len(many))
		}
		close(b.answers)
		found := <-done
		for _, kind := range many {
			if found[kind] != 1 {
				t.Errorf("%s is in epoch %d", kind, found[kind])
			}
		}
	})
}

// TestNotAllKindsAreLookedAtAtOnce: a turn that rests on all kinds leaves capacity of the bus to
// others.
func TestNotAllKindsAreLookedAtAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &asked{epoch: 1, last: 5, answers: make(chan struct{})}
		var many []kinds.Name
		for i := range 20 {
			many = append(many, kinds.Name(fmt.Sprint("kind", i)))
		}
		done := make(chan error)
		go func() {
			_, err := NewEpochs(b).OfKinds(t.Context(), many)
			done <- err
		}()
		synctest.Wait()
		if asked := b.states.Load(); asked != 16 {
			t.Errorf("%d kinds of %d are asked for at once", asked, len(many))
		}
		close(b.answers)
		if err := <-done; err != nil || b.states.Load() != 20 {
			t.Errorf("%d kinds are asked for, %v", b.states.Load(), err)
		}
	})
}

// TestAnEpochStaysKnown: while an epoch is used at intervals no turn waits for it.
func TestAnEpochStaysKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := NewEpochs(&asked{epoch: 1, last: 5})
		if _, err := e.OfKinds(t.Context(), []kinds.Name{kinds.Pods.Name}); err != nil {
			t.Fatal(err)
		}
		go e.Run(t.Context())
		for range 3 {
			time.Sleep(5*time.Second + time.Millisecond) // virtual
			if now, known := e.recent(kinds.Pods.Name); !known || now.epoch != 1 {
				t.Errorf("the cached epoch is %+v (known: %t), want 1", now, known)
			}
		}
	})
}

// TestATurnAwaitsALaterEpoch: a turn waits while a claim of a later epoch than its own is checked.
// A turn of the claimed epoch does not wait, nor does one whose writer stops.
func TestATurnAwaitsALaterEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		e := NewEpochs(b)
		if err := e.Await(t.Context(), 0); err != nil {
			t.Errorf("Await without any epoch: %v, want no wait", err)
		}
		looked := make(chan struct{})
		go e.epoch.Share(t.Context(), storageepoch.Config{Bus: b, ID: "writer", Check: func(context.Context, bool) (uint64, error) {
			<-looked
			return 0, nil
		}})
		synctest.Wait()
		if err := storageepoch.Say(b, storageepoch.Claim{Epoch: 1, By: "watcher"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := e.Await(t.Context(), 1); err != nil {
			t.Errorf("Await of the epoch that is recorded: %v, want no wait", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Await(short, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Await of an earlier epoch ends with %v, want only with its context", err)
		}
		began := time.Now()
		close(looked)
		if err := e.Await(t.Context(), 0); err != nil || time.Since(began) == 0 {
			t.Errorf("Await of an earlier epoch waits for %v: %v; want until it is looked up", time.Since(began), err)
		}
	})
}

// TestACrowdOfTurnsLooksOnce: concurrent turns share the lookup of an epoch.
func TestACrowdOfTurnsLooksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &asked{epoch: 3, last: 5, answers: make(chan struct{})}
		e := NewEpochs(b)
		found := make(chan events.Epochs, 10)
		for range cap(found) {
			go func() {
				epochs, err := e.OfKinds(t.Context(), []kinds.Name{kinds.Pods.Name})
				if err != nil {
					t.Error(err)
				}
				found <- epochs
			}()
		}
		synctest.Wait()
		close(b.answers)
		for range cap(found) {
			select {
			case epochs := <-found:
				if epochs[kinds.Pods.Name] != 3 {
					t.Errorf("a turn of the crowd was told %v", epochs)
				}
			case <-time.After(time.Minute):
				t.Fatal("no writer answers a turn of the crowd")
			}
		}
		if n := b.states.Load(); n != 1 {
			t.Errorf("the bus was asked %d times", n)
		}
	})
}

// An epoch that cannot be looked up is an error; a kind without streams, or with a damaged end,
// has none.
func TestEpochsThatCannotBeLookedUp(t *testing.T) {
	some := []kinds.Name{"pods"}
	b := podlog.Recorded(t, podlog.MarkOf("3", 0))
	for what, c := range map[string]struct {
		bus *bustest.Bus
		err error
	}{
		"the bus is away":     {bustest.Wrap(b).Fail(bustest.StreamState, away), away},
		"no stream":           {bustest.Wrap(b).Fail(bustest.StreamState, fmt.Errorf("look: %w", bus.ErrNoStream)), nil},
		"the end is torn":     {bustest.Wrap(b).Fail(bustest.At, events.ErrDamaged, subject.LogStream("pods")), nil},
		"nothing was said":    {bustest.Wrap(podlog.Recorded(t)), nil},
		"the end is not told": {bustest.Wrap(b).Fail(bustest.At, away, subject.LogStream("pods")), away},
	} {
		found, err := NewEpochs(c.bus).OfKinds(t.Context(), some)
		if !errors.Is(err, c.err) || len(found) != 0 || err != nil && !strings.Contains(err.Error(), "look up the epoch of pods") {
			t.Errorf("%s: the epochs are %v, %v; want %v", what, found, err, c.err)
		}
	}
	later := podlog.MarkOf("4", 0)
	later.Epoch = 7
	e := NewEpochs(podlog.Recorded(t, later))
	if found, err := e.OfKinds(t.Context(), some); err != nil || found["pods"] != 7 || e.Storage() != 7 {
		t.Errorf("the epochs are %v, %v, that of the storage %d", found, err, e.Storage())
	}
	if found, err := e.OfKinds(t.Context(), some); err != nil || found["pods"] != 7 {
		t.Errorf("the cached epochs are %v, %v; want 7 of pods", found, err)
	}
	if found, err := NewEpochs(garbled(b)).OfKinds(t.Context(), some); err != nil || len(found) != 0 {
		t.Errorf("with an end of the log that cannot be read the epochs are %v, %v; want none", found, err)
	}
	none := NewEpochs(podlog.Recorded(t))
	for range 2 { // from memory, too
		if found, err := none.OfKinds(t.Context(), some); err != nil || len(found) != 0 {
			t.Errorf("of a kind with an empty log the epochs are %v, %v; want none", found, err)
		}
	}
	if _, err := NewEpochs(bustest.Wrap(b).Fail(bustest.StreamState, away)).check(t.Context()); !errors.Is(err, away) {
		t.Errorf("where the kinds stand is not told: %v", err)
	}
	if _, err := NewEpochs(bustest.Wrap(b).Fail(bustest.Kinds, away)).check(t.Context()); !errors.Is(err, away) {
		t.Errorf("when the kinds cannot be listed: %v, want the error of the bus", err)
	}
	if epoch, err := NewEpochs(podlog.Recorded(t, later)).check(t.Context()); err != nil || epoch != 7 {
		t.Errorf("the newest epoch of all kinds is %d, %v; want 7", epoch, err)
	}
}

// A lookup is valid for two seconds, and is refreshed while it is used.
func TestForHowLongAnEpochCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &asked{epoch: 1, last: 5}
		e := NewEpochs(b)
		if _, err := e.OfKinds(t.Context(), []kinds.Name{"pods"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Second - 1) // virtual
		if _, known := e.recent("pods"); !known {
			t.Error("the cached epoch expires in less than two seconds")
		}
		time.Sleep(1)
		if _, known := e.recent("pods"); known {
			t.Error("the cached epoch has not expired after two seconds")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go e.Run(ctx)
		before := b.states.Load()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if looked := b.states.Load() - before; looked != 9 {
			t.Errorf("unused it was looked up %d times in 30 s, want once a second for less than 10 s", looked)
		}
		cancel()
		synctest.Wait()
	})
}
