package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/replay"
	"github.com/millrace/millrace/test/sim"
)

// asRecorded makes the controllers of this code with the settings that turns have.
func asRecorded(controller string, settings json.RawMessage) (reconcile.Any, error) {
	entry, _ := controllers.Find(controller)
	return entry.Again(settings)
}

func replayed(t *testing.T, w *sim.World, o replay.Options, each func(replay.Case) error) replay.Summary {
	t.Helper()
	if o.Make == nil {
		o.Make = asRecorded
	}
	s, err := replay.Run(context.Background(), w.Archive(), o, each)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Whatever happens to a world - replicas that come, go, stall and read old copies,
// epochs, losses - its record is decided again as it was, turn by turn.
func TestEveryRecordIsReplayedToTheLetter(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			total, worlds := replay.Summary{Unjudged: map[replay.Why]int{}}, max(*n/6, 1)
			for s0 := *seed; s0 < *seed+worlds; s0++ {
				options := s.options
				options.Seed, options.Mute = s0, true
				w := lives(t, options, s.controllers())
				got := replayed(t, w, replay.Options{Remembered: 8}, func(c replay.Case) error {
					if c.Verdict == replay.Differs {
						return fmt.Errorf("turn %d of %s for %v is decided otherwise: %+v%s\nthan recorded: %+v\n%s", c.Sequence, c.Controller, c.Turn.Key, c.Now, c.Broken, c.Turn, again(name, s0))
					}
					return nil
				})
				total.Turns, total.Same, total.Passes = total.Turns+got.Turns, total.Same+got.Same, max(total.Passes, got.Passes)
				for why, n := range got.Unjudged {
					total.Unjudged[why] += n
				}
			}
			t.Logf("%d turns of %d worlds: %d the same, not judged %v; %d passes", total.Turns, worlds, total.Same, total.Unjudged, total.Passes)
		})
	}
}
