package sim_test

import (
	"testing"

	"github.com/millrace/millrace/test/sim"
)

// frail are the shapes in which a disaster breaks a rule: which, in which world.
var frail = map[string]string{
	"autoscalers": "I10, seed 22: what a turn did before a restore is missed after it",
	"servers":     "A4, seed 2: a server that was told of only before a restore is known for longer",
}

// Whatever else goes wrong, restores, lost outcomes and positions, and a cluster that is
// suspended break nothing. The worlds are the same on each day.
func TestDisasters(t *testing.T) {
	const worlds = 60
	for name, s := range shapes {
		if len(s.options.Trouble) < len(sim.All) || frail[name] != "" {
			continue // it has troubles of its own
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= worlds; seed++ {
				options := s.options
				options.Seed, options.Mute, options.Trouble = seed, true, sim.Worst
				if sim.New(options, s.controllers()).Run() != nil {
					options.Mute = false // once more, with the transcript
					t.Fatalf("%v\nFRAIL %s", sim.New(options, s.controllers()).Run(), name)
				}
			}
		})
	}
}
