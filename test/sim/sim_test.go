package sim_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim"
)

var (
	seed = flag.Uint64("sim.seed", 1, "seed of the first world")
	n    = flag.Uint64("sim.n", 500, "number of worlds of each shape")
)

func controllers() []reconcile.Any {
	return []reconcile.Any{deployment.Controller, replicaset.Controller, garbagecollector.Controller}
}

// shapes are the worlds that every seed is tried in.
var shapes = map[string]sim.Options{
	"calm":         {Replicas: 1, Writers: 1, Changes: 8, Preconditions: true, Pace: -1},
	"faults":       {Replicas: 1, Writers: 1, Changes: 8, Faults: 12, Preconditions: true, Pace: -1},
	"two of each":  {Replicas: 2, Writers: 2, Changes: 8, Preconditions: true, Pace: -1},
	"two, faults":  {Replicas: 2, Writers: 2, Changes: 10, Faults: 15, Preconditions: true, Pace: 50 * time.Millisecond},
	"three, storm": {Replicas: 3, Writers: 3, Changes: 16, Faults: 60, Preconditions: true, Pace: 50 * time.Millisecond},
}

func TestWorlds(t *testing.T) {
	for name, options := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for s := *seed; s < *seed+*n; s++ {
				options.Seed = s
				if err := sim.New(options, controllers()).Run(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The simulation is worth something only if it notices what it is for.
func TestItBites(t *testing.T) {
	for name, tc := range map[string]struct {
		cheat func(*sim.Options)
		rule  string
	}{
		"half of the fence":        {func(o *sim.Options) { o.HalfFence = true }, "I2"},
		"turns without conditions": {func(o *sim.Options) { o.Preconditions = false }, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for s := uint64(1); s <= 400; s++ {
				options := shapes["two, faults"]
				options.Seed = s
				tc.cheat(&options)
				if err := sim.New(options, controllers()).Run(); err != nil && strings.Contains(err.Error(), tc.rule) {
					return
				}
			}
			t.Error("400 worlds noticed nothing")
		})
	}
}

func TestAWorldIsItsSeed(t *testing.T) {
	options := shapes["two, faults"]
	options.Seed = *seed
	first, second := sim.New(options, controllers()), sim.New(options, controllers())
	errFirst, errSecond := first.Run(), second.Run()
	if (errFirst == nil) != (errSecond == nil) || first.Story() != second.Story() {
		t.Error("the same seed gave two worlds")
	}
}
