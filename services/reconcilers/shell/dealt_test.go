package shell

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// Changes that an earlier process has dealt with ask for no turns. If its position is not
// known, neither do the messages stored before this process started: an engine that opens asks
// about every object. Later changes are named in the turns that they ask for.
func TestOnlyWhatWasNotDealtWithAsksForTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		left  uint64
		known bool
		want  []uint64 // the changes that ask for turns
		floor uint64
	}{
		"no process before this one":          {0, false, nil, 5},
		"one that had dealt with some":        {3, true, []uint64{4, 5}, 3},
		"one that had dealt with all":         {5, true, nil, 5},
		"one that had read more than is kept": {9, true, nil, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &predecessor{telling: telling{
					state: bus.State{First: 1, Last: 5, Messages: 5}, told: logged(1, 3, 4, 5),
				}, left: tc.left, known: tc.known}
				f := Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind}
				f.Cache.Register(choosy(new(int)).Describe())
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- f.session(ctx) }()
				synctest.Wait()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				var got []uint64
				var all cache.Changes
				f.Cache.View("toy", nil, func(s cache.Snapshot) { all = s.TakeChanges() })
				for _, k := range all.Keys {
					for _, why := range all.Causes[k].Triggers {
						got = append(got, why.Sequence)
					}
				}
				if !cmp.Equal(got, tc.want) {
					t.Errorf("changes %v ask for turns, want %v", got, tc.want)
				}
				if f.floor != tc.floor {
					t.Errorf("it goes on behind %d, want %d", f.floor, tc.floor)
				}
			})
		})
	}
}

// predecessor is a bus that knows the position that an earlier process has acknowledged.
type predecessor struct {
	telling
	left  uint64
	known bool
}

func (b *predecessor) Acknowledged(context.Context, string) (uint64, bool, error) {
	return b.left, b.known, nil
}

// A change is dealt with when each key that it asked for has had its turn, and that turn is
// stored.
func TestAChangeIsDealtWithWhenItsTurnIsStored(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	is := func(what string, sets, pods uint64) {
		t.Helper()
		want := map[kinds.Name]uint64{kinds.ReplicaSets.Name: sets, kinds.Pods.Name: pods}
		if got := o.engine.Dealt(); !cmp.Equal(got, want) {
			t.Errorf("%s: dealt with up to %v, want %v", what, got, want)
		}
	}
	o.change(kinds.Pods.Kind, events.Is, aPod("alone", "", 1))
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("db", 1, 0, 0, ""))
	is("nothing was wanted", 1, 1)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 0, ""))
	is("while the key is recalled", 1, 1)
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 2))
	is("while the turn is being stored", 1, 1)
	o.answer(events.LaneWrite, 10, nil)
	o.answer(o.take(events.LaneStatus).Lane, 11, nil)
	is("when its turns are stored", 2, 2)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 3, 1, ""))
	is("while the write of before has no outcome", 2, 2)
}

// The loop reports the position a little later, without another event.
func TestALoopTellsHowFarItGot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := cache.New()
		memory.Register(choosy(new(int)).Describe())
		memory.Follow(kinds.Pods.Kind)
		memory.Follow(kinds.ReplicaSets.Kind)
		l := NewLoop(&torn{}, choosy(new(int)), memory, Settings{}, nil)
		f := Follower{Cache: memory, Kind: kinds.Pods.Kind, Loops: []*Loop{l}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		memory.Fold(kinds.Pods.Name, logged(1))
		if got := f.dealt(); got != 0 {
			t.Errorf("%d is dealt with before the loop was told", got)
		}
		for range 3 {
			l.Do(func(d *Engine) { d.Folded(kinds.Pods.Name) })
			synctest.Wait()
		}
		time.Sleep(2 * countEvery) // virtual
		synctest.Wait()
		if got := f.dealt(); got != 1 {
			t.Errorf("%d is dealt with, want 1", got)
		}
		cancel()
		synctest.Wait()
	})
}
