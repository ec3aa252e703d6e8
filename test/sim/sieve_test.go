package sim_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim"
	"github.com/millrace/millrace/test/sim/world"
)

var (
	share = flag.Int("sieve.share", 250, "play one of so many perturbations; 1 plays all")
	slice = flag.Int("sieve.slice", -1, "which of them; less than 0: one of the day")
	one   = flag.String("sieve.one", "", "play only this perturbation, with its transcript")
)

// casts are the controllers of scenarios.
var casts = map[string]func() []reconcile.Any{
	"": workloadsControllers, "furniture": furniture, "sets": sets, "daemons": daemons, "jobs": jobs, "network": networkControllers, "budgets": budgets,
	"quotas": quotas, "demolition": demolition, "autoscalers": autoscalers,
	"storage": storageControllers, "node ranges": nodeRanges, "devices": devicesControllers, "certificates": certificates,
	"joins": joins, "labels": labels, "pools": pools,
}

func cast(s sim.Scenario) []reconcile.Any { return casts[s.Cast]() }

func scenarios() []sim.Scenario { return slices.Concat(sim.Scenarios(), sim.LateScenarios()) }

// Every single fault strikes at every point of every scenario.
func TestSieve(t *testing.T) {
	var all, played atomic.Int64
	for _, s := range scenarios() {
		for crew, options := range map[string]world.Options{
			"":              {},
			", two of each": {Replicas: 2, Writers: 2},
		} {
			options.Mute = *one == ""
			name := s.Name + crew
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				record, err := sim.Recorded(s, options, cast(s))
				if err != nil {
					t.Fatal(err)
				}
				count, done := 0, 0
				for b := range record.Blows() {
					if count++; *one != "" && b.String() != *one || *one == "" && count%*share != *slice%*share {
						continue
					}
					done++
					if _, err := record.Strike(b, cast(s)); err != nil {
						t.Fatalf("%v: %v\nagain: go test ./test/sim -run 'TestSieve/%s$' -sieve.one='%v'", b, err, strings.ReplaceAll(name, " ", "_"), b)
					}
				}
				all.Add(int64(count))
				played.Add(int64(done))
				t.Logf("%v; %d of %d perturbations played", record.Tally, done, count)
			})
		}
	}
	t.Cleanup(func() { fmt.Printf("%d of %d perturbations played\n", played.Load(), all.Load()) })
}

// The API server goes back to any earlier version at any point: a new epoch begins, no decision
// of the old one is carried out, and the world comes to the state of its current specs.
func TestRestores(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			record, err := sim.Recorded(s, world.Options{Mute: *one == ""}, cast(s))
			if err != nil {
				t.Fatal(err)
			}
			count := 0
			for b := range record.Restores() {
				if count++; *one != "" && b.String() != *one || *one == "" && count%*share != *slice%*share {
					continue
				}
				if _, err := record.Strike(b, cast(s)); err != nil {
					t.Fatalf("%v: %v\nagain: go test ./test/sim -run 'TestRestores/%s$' -sieve.one='%v'", b, err, strings.ReplaceAll(s.Name, " ", "_"), b)
				}
			}
			t.Logf("one of %d of %d restores played", *share, count)
		})
	}
}

// The enumeration has to detect by itself every mechanism that a cheat disables.
func TestTheSieveBites(t *testing.T) {
	for name, tc := range map[string]struct {
		cheat  world.Cheat
		ignore string
		rule   string
	}{
		"half of the fence":                  {world.HalfFence, "I3 I4 I5 I8", "I2 "},
		"a fence in memory":                  {world.MemoryFence, "", "I10 "},
		"a fence in memory, by what it does": {world.MemoryFence, "I10", "I2 "},
		"turns without conditions":           {world.Heedless, "", "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range scenarios() {
				if s.Cast != "" {
					continue
				}
				record, err := sim.Recorded(s, world.Options{Mute: true}, workloadsControllers())
				if err != nil {
					t.Fatal(err)
				}
				count := 0
				for b := range record.Blows() {
					if count++; count%23 != 0 {
						continue
					}
					if _, err := record.Cheated(tc.cheat, tc.ignore).Strike(b, workloadsControllers()); err != nil && strings.Contains(err.Error(), tc.rule) {
						return
					}
				}
			}
			t.Error("nothing was noticed")
		})
	}
}
