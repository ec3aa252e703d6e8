package sim_test

import (
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim"
)

var (
	share = flag.Int("sieve.share", 100, "play one of so many perturbations; 1 plays all")
	one   = flag.String("sieve.one", "", "play only this perturbation, with its transcript")
)

func cast(s sim.Scenario) []reconcile.Any {
	if s.Furnished {
		return furniture()
	}
	return workloads()
}

// Everything that can go wrong once goes wrong at every point of every scenario.
func TestSieve(t *testing.T) {
	var all, played atomic.Int64
	for _, s := range sim.Scenarios() {
		for crew, options := range map[string]sim.Options{
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
					if count++; *one != "" && b.String() != *one || *one == "" && count%*share != 0 {
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
