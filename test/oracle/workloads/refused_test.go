package workloads_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/oracle/workloads"
)

// TestRefusedWritesEndAsUpstreams: the API server refuses some writes of each controller, temporarily or for
// good. When both are at rest, the objects and the Events must be the same.
func TestRefusedWritesEndAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 10)
	pods, sets := kinds.Pods.Kind, kinds.ReplicaSets.Kind
	for _, c := range []oracletest.Refused{
		{Name: "replicaset", Pair: workloads.ReplicaSet, Worlds: wellSetWorld, Kinds: []kinds.Kind{sets, pods, kinds.Deployments.Kind}, Spared: claimsForGood},
		{Name: "replicationcontroller", Pair: workloads.ReplicationController, Worlds: func(t *rapid.T) []runtime.Object { return workloads.Older(wellSetWorld(t)) }, Kinds: []kinds.Kind{kinds.ReplicationControllers.Kind, pods}, Spared: claimsForGood},
	} {
		c.EndsAlike(t)
	}
}

// TestSetsReportThoughTheyCannotClaim shows what docs/differences.md says about a set whose pods cannot be
// adopted or released.
func TestSetsReportThoughTheyCannotClaim(t *testing.T) {
	rest := stage.Rest{Theirs: workloads.ReplicaSet.Theirs, Ours: workloads.ReplicaSet.Ours, Kinds: []kinds.Kind{kinds.ReplicaSets.Kind, kinds.Pods.Kind, kinds.Deployments.Kind}}
	refusal := stage.Refusal{Verb: plan.Patch, Times: 1 << 30, Answer: stage.Refusals(plan.Patch)[0]}
	worlds := rapid.Custom(wellSetWorld)
	for seed := range oracletest.Enough {
		diff, err := rest.Compare(t, worlds.Example(seed), refusal)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(diff, ".status.") {
			return
		}
	}
	t.Errorf("in %d worlds both said the same", oracletest.Enough)
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
func claimsForGood(_ []runtime.Object, r stage.Refusal) bool {
	return r.Verb == plan.Patch && r.Times > 2
}
