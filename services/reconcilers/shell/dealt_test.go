package shell

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/engine"
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
					t.Errorf("the follower's floor is %d, want %d", f.floor, tc.floor)
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
			t.Errorf("the log is dealt with up to %d before the loop was told of it, want 0", got)
		}
		for range 3 {
			l.Do(func(d *engine.Engine) { d.Folded(kinds.Pods.Name) })
			synctest.Wait()
		}
		time.Sleep(2 * countEvery) // virtual
		synctest.Wait()
		if got := f.dealt(); got != 1 {
			t.Errorf("the log is dealt with up to %d, want 1", got)
		}
		cancel()
		synctest.Wait()
	})
}
