package oracletest

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/stage"
)

// The kinds of requests that may be refused.
var (
	Creates       = stage.Refusal{Verb: plan.Create}
	Updates       = stage.Refusal{Verb: plan.Update}
	Reports       = stage.Refusal{Verb: plan.Update, Status: true}
	Patches       = stage.Refusal{Verb: plan.Patch}
	StatusPatches = stage.Refusal{Verb: plan.Patch, Status: true}
	Deletes       = stage.Refusal{Verb: plan.Delete}
	DeletesEver   = stage.Refusal{Verb: plan.Delete, Times: 1 << 30}
)

// RestAlike searches for a world in which both come to different ends if some requests are refused.
func RestAlike(t *testing.T, rest stage.Rest, worlds func(*rapid.T) []runtime.Object, requests ...stage.Refusal) {
	Fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		world, refusal := worlds(r), RefusalOf(r, requests)
		diff, err := rest.Compare(t, world, refusal)
		if err != nil {
			r.Fatalf("%v: %v\n%s", refusal, err, Page(r, world))
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) come to different ends where is refused: %v\n%s\n%s", refusal, diff, Page(r, world))
		}
	})
}

// RefusalOf refuses one kind of request, temporarily or for good.
func RefusalOf(t *rapid.T, requests []stage.Refusal) stage.Refusal {
	r := rapid.SampledFrom(requests).Draw(t, "refused")
	times := []int{0, 1, 2, 1 << 30}
	if r.Times > 0 {
		times = []int{0, r.Times}
	}
	r.Times = rapid.SampledFrom(times).Draw(t, "times")
	r.Answer = rapid.SampledFrom(stage.Refusals(r.Verb)).Draw(t, "answer")
	switch {
	case stage.Lasting(r.Answer):
		r.Times = 1 << 30
	case stage.Passing(r.Verb, r.Answer):
		r.Times = min(r.Times, 2)
	}
	return r
}

// Refused is a controller and its refusals.
type Refused struct {
	Name   string
	Pair   frozen.Pair
	Worlds func(*rapid.T) []runtime.Object
	Kinds  []kinds.Kind
	// Requests, when set, are the kinds of requests of which one is refused, each about one kind: which of
	// several is the first depends on the controller's order. If not set, any kind is refused.
	Requests []stage.Refusal
	// Spared reports which refusals are left out in a world; nil: none.
	Spared func([]runtime.Object, stage.Refusal) bool
	Fair   func(world []runtime.Object, refusal stage.Refusal, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect)
}

func (c Refused) atRest() stage.Rest {
	return stage.Rest{Theirs: c.Pair.Theirs, Ours: c.Pair.Ours, Kinds: c.Kinds, Fair: c.Fair}
}

// EndsAlike checks that upstream's controller and ours come to the same end.
func (c Refused) EndsAlike(t *testing.T) {
	t.Run(c.Name, func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) {
			world := c.Worlds(r)
			var refusal stage.Refusal
			if c.Requests != nil {
				refusal = RefusalOf(r, c.Requests)
			} else {
				refusal = anyRefusal(r)
			}
			if c.Spared != nil && c.Spared(world, refusal) {
				refusal.Times = 0
			}
			diff, err := c.atRest().Compare(t, world, refusal)
			if err != nil {
				r.Fatalf("%v: %v\n%s", refusal, err, Page(r, world))
			}
			if diff != "" {
				r.Fatalf("upstream (-) and we (+) come to different ends where is refused: %v\n%s\n%s", refusal, diff, Page(r, world))
			}
		})
	})
}

func anyRefusal(t *rapid.T) stage.Refusal {
	r := stage.Refusal{
		Verb:  rapid.SampledFrom([]plan.Verb{plan.Create, plan.Update, plan.Patch, plan.Delete}).Draw(t, "verb"),
		Times: rapid.SampledFrom([]int{0, 1, 2, 1 << 30}).Draw(t, "times"),
	}
	r.Answer = rapid.SampledFrom(stage.Refusals(r.Verb)).Draw(t, "answer")
	switch {
	case stage.Lasting(r.Answer):
		r.Times = 1 << 30
	case stage.Passing(r.Verb, r.Answer):
		r.Times = min(r.Times, 2)
	}
	r.Status = r.Verb == plan.Update && rapid.Bool().Draw(t, "of the status")
	return r
}
