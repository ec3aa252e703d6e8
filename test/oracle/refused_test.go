package oracle_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle"
)

// TestRefusedWritesEndAsUpstreams: the API server refuses some writes of each controller, temporarily or for
// good. When both are at rest, the objects and the Events must be the same.
func TestRefusedWritesEndAsUpstreams(t *testing.T) {
	fewer(t, 10)
	pods, sets := kinds.Pods.Kind, kinds.ReplicaSets.Kind
	for _, c := range []refused{
		{"replicaset", oracle.ReplicaSet, wellSetWorld, []kinds.Kind{sets, pods, kinds.Deployments.Kind}, nil, claimsForGood, nil},
		{"replicationcontroller", oracle.ReplicationController, func(t *rapid.T) []runtime.Object { return oracle.Older(wellSetWorld(t)) }, []kinds.Kind{kinds.ReplicationControllers.Kind, pods}, nil, claimsForGood, nil},
		{"pvprotection", oracle.VolumeProtection, volumeWorld, []kinds.Kind{kinds.PersistentVolumes.Kind}, nil, nil, nil},
		{"pvcprotection", oracle.ClaimProtection, claimWorld, []kinds.Kind{kinds.PersistentVolumeClaims.Kind, pods}, nil, nil, nil},
	} {
		c.endsAlike(t)
	}
}

// refused is a controller and its refusals.
type refused struct {
	name   string
	pair   oracle.Pair
	worlds func(*rapid.T) []runtime.Object
	kinds  []kinds.Kind
	// requests, when set, are the kinds of requests of which one is refused, each about one kind: which of
	// several is the first depends on the controller's order. If not set, any kind is refused.
	requests []oracle.Refusal
	// spared reports which refusals are left out in a world; nil: none.
	spared func([]runtime.Object, oracle.Refusal) bool
	fair   func(world []runtime.Object, refusal oracle.Refusal, theirs, ours []oracle.Effect) ([]oracle.Effect, []oracle.Effect)
}

func (c refused) rest() oracle.Rest {
	return oracle.Rest{Theirs: c.pair.Theirs, Ours: c.pair.Ours, Kinds: c.kinds, Fair: c.fair}
}

// endsAlike checks that upstream's controller and ours come to the same end.
func (c refused) endsAlike(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) {
			world := c.worlds(r)
			var refusal oracle.Refusal
			if c.requests != nil {
				refusal = refusalOf(r, c.requests)
			} else {
				refusal = anyRefusal(r)
			}
			if c.spared != nil && c.spared(world, refusal) {
				refusal.Times = 0
			}
			diff, err := c.rest().Compare(t, world, refusal)
			if err != nil {
				r.Fatalf("%v: %v\n%s", refusal, err, page(r, world))
			}
			if diff != "" {
				r.Fatalf("upstream (-) and we (+) come to different ends where is refused: %v\n%s\n%s", refusal, diff, page(r, world))
			}
		})
	})
}

func anyRefusal(t *rapid.T) oracle.Refusal {
	r := oracle.Refusal{
		Verb:  rapid.SampledFrom([]plan.Verb{plan.Create, plan.Update, plan.Patch, plan.Delete}).Draw(t, "verb"),
		Times: rapid.SampledFrom([]int{0, 1, 2, 1 << 30}).Draw(t, "times"),
	}
	r.Answer = rapid.SampledFrom(oracle.Refusals(r.Verb)).Draw(t, "answer")
	switch {
	case oracle.Lasting(r.Answer):
		r.Times = 1 << 30
	case oracle.Passing(r.Verb, r.Answer):
		r.Times = min(r.Times, 2)
	}
	r.Status = r.Verb == plan.Update && rapid.Bool().Draw(t, "of the status")
	return r
}

// TestSetsReportThoughTheyCannotClaim shows what docs/differences.md says about a set whose pods cannot be
// adopted or released.
func TestSetsReportThoughTheyCannotClaim(t *testing.T) {
	rest := oracle.Rest{Theirs: oracle.ReplicaSet.Theirs, Ours: oracle.ReplicaSet.Ours, Kinds: []kinds.Kind{kinds.ReplicaSets.Kind, kinds.Pods.Kind, kinds.Deployments.Kind}}
	refusal := oracle.Refusal{Verb: plan.Patch, Times: 1 << 30, Answer: oracle.Refusals(plan.Patch)[0]}
	worlds := rapid.Custom(wellSetWorld)
	for seed := range enough {
		diff, err := rest.Compare(t, worlds.Example(seed), refusal)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(diff, ".status.") {
			return
		}
	}
	t.Errorf("in %d worlds both said the same", enough)
}

// wellSetWorld is a replica set without an earlier failure in its status: ours knows failures from outcomes
// only, and there are none.
func wellSetWorld(t *rapid.T) []runtime.Object {
	world := replicaSetWorld(t)
	for _, obj := range world {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok {
			rs.Status.Conditions = nil
		}
	}
	return world
}

// claimsForGood is true if pods can never be adopted or released. Ours continues to report.
func claimsForGood(_ []runtime.Object, r oracle.Refusal) bool {
	return r.Verb == plan.Patch && r.Times > 2
}
