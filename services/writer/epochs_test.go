package writer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
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
	m := events.EncodeDelta(events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "1", Epoch: a.epoch})
	m.Subject = subject.Mark(kinds.Pods.Name)
	return m, true, nil
}

// TestAnEpochIsReadWhenTheStateHasMoved: a message is read once.
func TestAnEpochIsReadWhenTheStateHasMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a lookup is cached for a second
		b := &asked{epoch: 1, last: 5}
		e := newEpochs(b)
		is := func(epoch uint64, bodies int32) {
			t.Helper()
			e.recent(kinds.Pods.Name)
			now, err := e.lookUp(t.Context(), kinds.Pods.Name)
			if err != nil || !now.ok || now.epoch != epoch || b.bodies.Load() != bodies {
				t.Errorf("the epoch is %+v, %v, after reading %d messages; want %d after %d", now, err, b.bodies.Load(), epoch, bodies)
			}
			if _, known := e.recent(kinds.Pods.Name); !known {
				t.Error("what was just looked up is not known")
			}
		}
		is(1, 1)
		is(1, 1)
		b.epoch, b.last = 2, 6
		is(2, 2)
		b.epoch, b.created = 3, time.Now() // the stream was recreated, with as many messages
		is(3, 3)
	})
}

// TestATurnThatRestsOnManyKindsLooksAtThemTogether: the lookups for a turn that rests on many
// kinds run concurrently.
func TestATurnThatRestsOnManyKindsLooksAtThemTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &asked{epoch: 1, last: 5, answers: make(chan struct{})}
		e := newEpochs(b)
		many := []kinds.Name{kinds.Pods.Name, kinds.Jobs.Name, kinds.Nodes.Name}
		done := make(chan events.Epochs)
		go func() {
			found, err := e.ofKinds(t.Context(), many)
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
			_, err := newEpochs(b).ofKinds(t.Context(), many)
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
		e := newEpochs(&asked{epoch: 1, last: 5})
		if _, err := e.ofKinds(t.Context(), []kinds.Name{kinds.Pods.Name}); err != nil {
			t.Fatal(err)
		}
		go e.run(t.Context())
		for range 3 {
			time.Sleep(5*time.Second + time.Millisecond) // virtual
			if now, known := e.recent(kinds.Pods.Name); !known || now.epoch != 1 {
				t.Errorf("it is %+v, known: %t", now, known)
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
		e := newEpochs(b)
		if err := e.await(t.Context(), 0); err != nil {
			t.Errorf("nothing is said, and it waits: %v", err)
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
		if err := e.await(t.Context(), 1); err != nil {
			t.Errorf("it rests on that epoch, and waits: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.await(short, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it rests on an earlier epoch, and its writer stops: %v", err)
		}
		began := time.Now()
		close(looked)
		if err := e.await(t.Context(), 0); err != nil || time.Since(began) == 0 {
			t.Errorf("it rests on an earlier epoch, and waits for %v: %v", time.Since(began), err)
		}
	})
}

// TestACrowdOfTurnsLooksOnce: concurrent turns share the lookup of an epoch.
func TestACrowdOfTurnsLooksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &asked{epoch: 3, last: 5, answers: make(chan struct{})}
		e := newEpochs(b)
		found := make(chan events.Epochs, 10)
		for range cap(found) {
			go func() {
				epochs, err := e.ofKinds(t.Context(), []kinds.Name{kinds.Pods.Name})
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
