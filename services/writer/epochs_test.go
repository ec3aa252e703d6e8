package writer

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// asked is a bus with one mark of pods at its end, that counts what it is asked.
type asked struct {
	bus.Bus
	epoch, last    uint64
	answers        chan struct{} // one for each question where a stream stands; nil: at once
	states, bodies atomic.Int32
}

func (a *asked) StreamState(context.Context, string) (bus.State, error) {
	a.states.Add(1)
	if a.answers != nil {
		<-a.answers
	}
	return bus.State{First: 1, Last: a.last, Messages: 1}, nil
}

func (a *asked) At(context.Context, string, uint64) (events.Message, bool, error) {
	a.bodies.Add(1)
	m := events.EncodeDelta(events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "1", Epoch: a.epoch})
	m.Subject = subject.Mark(kinds.Pods.Name)
	return m, true, nil
}

// TestAnEpochIsReadWhenTheStateHasMoved: what was read already is not read again.
func TestAnEpochIsReadWhenTheStateHasMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // what was looked up is known for a second
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
	})
}

// TestATurnThatRestsOnManyKindsLooksAtThemTogether: of a turn that rests on many kinds
// the first is not waited for before the next one is asked for.
func TestATurnThatRestsOnManyKindsLooksAtThemTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &asked{epoch: 1, last: 5, answers: make(chan struct{})}
		e := newEpochs(b)
		many := []kinds.Name{kinds.Pods.Name, kinds.Jobs.Name, kinds.Nodes.Name}
		done := make(chan events.Epochs)
		go func() {
			found, err := e.of(t.Context(), many)
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

// TestACrowdOfTurnsLooksOnce: turns that come together ask for an epoch together.
func TestACrowdOfTurnsLooksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &asked{epoch: 3, last: 5, answers: make(chan struct{})}
		e := newEpochs(b)
		found := make(chan events.Epochs, 10)
		for range cap(found) {
			go func() {
				epochs, err := e.of(t.Context(), []kinds.Name{kinds.Pods.Name})
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
				t.Fatal("nobody answers a turn of the crowd")
			}
		}
		if n := b.states.Load(); n != 1 {
			t.Errorf("the bus was asked %d times", n)
		}
	})
}
