package oracletest

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
)

// EventfulCase is a pair of controllers, and what upstream's writes must have in some of its worlds.
type EventfulCase struct {
	Name   string
	Pair   frozen.Pair
	Key    events.Key
	Worlds func(*rapid.T) []runtime.Object
	Want   []string
}

// Eventful makes sure that upstream does everything that it can do in the worlds of each case.
func Eventful(t *testing.T, cases []EventfulCase) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			left, generator := c.Want, rapid.Custom(c.Worlds)
			for seed := 0; seed < Enough && len(left) > 0; seed++ {
				effects, err := c.Pair.AskTheirs(t, c.Key, generator.Example(seed), objects.Now)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range effects {
					left = slices.DeleteFunc(slices.Clone(left), func(w string) bool { return strings.Contains(e.String(), w) })
				}
			}
			if len(left) > 0 {
				t.Errorf("in %d worlds upstream never came to %q", Enough, left)
			}
		})
	}
}

// Agree searches for a world in which the two decide differently, under random feature gates.
func Agree(t *testing.T, pair frozen.Pair, key events.Key, worlds func(*rapid.T) []runtime.Object, gates ...string) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		world := worlds(r)
		p, err := pair.Under(AnyGates(r, gates...))
		if err != nil {
			r.Fatal(err)
		}
		diff, err := p.Compare(t, key, world)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) decide differently under %v:\n%s\n%s", p.Gates, diff, Page(r, world))
		}
	})
}
