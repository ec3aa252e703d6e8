package nodes_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodeipam"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/nodes"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
)

// Nodes get the same ranges as from upstream, whatever nodes were added and deleted before, and whatever
// ranges nodes already have.
func TestNodesGetTheRangesOfUpstream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		world := rangedNodes(r)
		if diff := world.Compare(t); diff != "" {
			r.Fatalf("upstream (-) and we (+) differ %s\n%+v", diff, world.Config)
		}
	})
}

// The same with temporarily refused patches of nodes: fewer than upstream's immediate tries, or more in the
// last step.
func TestRefusedNodesGetTheRangesOfUpstream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		world, refusals := rangedNodes(r), ""
		for i := range world.Steps {
			refused := stage.Refusal{Verb: plan.Patch, Kind: kinds.Nodes.Name, Times: rapid.IntRange(0, 2).Draw(r, "times")}
			if i == len(world.Steps)-1 {
				refused.Times = rapid.IntRange(0, 7).Draw(r, "times at last")
			}
			refused.Answer = rapid.SampledFrom(stage.Refusals(plan.Patch)).Draw(r, "answer")
			world.Steps[i].Refused = refused
			refusals += fmt.Sprintf("%d: %v\n", i, refused)
		}
		if diff := world.Compare(t); diff != "" {
			r.Fatalf("upstream (-) and we (+) differ %s\n%+v\n%v", diff, world.Config, refusals)
		}
	})
}

// families are ranges of clusters, with nodes' own ranges in them and beside them.
var families = map[bool][]nodeipam.Range{
	true:  {{CIDR: "10.0.0.0/22", Mask: 24}, {CIDR: "10.0.0.0/21", Mask: 24}, {CIDR: "10.0.0.64/26", Mask: 28}, {CIDR: "10.0.0.0/24", Mask: 24}, {CIDR: "10.0.0.0/8", Mask: 24}},
	false: {{CIDR: "fd00::/62", Mask: 64}, {CIDR: "fd00::/62", Mask: 65}, {CIDR: "fd00:0:0:8::/61", Mask: 64}, {CIDR: "fd00::/120", Mask: 122}, {CIDR: "fd00::/56", Mask: 72}},
}

// rangedNodes is a cluster of one family or two, with ranges of Services that may be in it.
func rangedNodes(t *rapid.T) (w nodes.NodeRanges) {
	order := rapid.SampledFrom([][]bool{{true}, {true}, {false}, {true, false}, {false, true}}).Draw(t, "families")
	for _, four := range order {
		w.Config.Cluster = append(w.Config.Cluster, rapid.SampledFrom(families[four]).Draw(t, "cluster"))
	}
	w.Config.Services = rapid.SampledFrom([][]string{nil, {"10.96.0.0/12"}, {"10.0.0.0/25"}, {"10.0.1.0/24", "fd00::/112"}, {"fd00:0:0:1::/64"}, {"10.0.0.0/23", "fd00::/63"}}).Draw(t, "services")
	made := 0
	comes := func() *corev1.Node {
		made++
		if !oracletest.Chance(t, 3, "own ranges") {
			return nodes.RangedNode(fmt.Sprint("n", made))
		}
		return nodes.RangedNode(fmt.Sprint("n", made), ownRanges(t, order)...)
	}
	if oracletest.Chance(t, 2, "one is there") { // with several it would be chance which gets which range
		w.First = append(w.First, comes())
	}
	for range rapid.IntRange(0, 8).Draw(t, "steps") {
		if oracletest.Chance(t, 3, "goes") {
			w.Steps = append(w.Steps, nodes.NodeStep{Goes: rapid.IntRange(0, 9).Draw(t, "which")})
			continue
		}
		w.Steps = append(w.Steps, nodes.NodeStep{Comes: comes()})
	}
	return w
}

// ownRanges are the ranges that a new node may have: one of each family, larger or smaller than ours.
func ownRanges(t *rapid.T, order []bool) (all []string) {
	of := map[bool][]string{
		true:  {"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/23", "10.0.3.0/25", "10.0.0.80/28", "10.0.0.0/20"},
		false: {"fd00::/64", "fd00:0:0:2::/63", "fd00:0:0:3::/65", "fd00:0:0:9::/64", "fd00::40/122", "fd00::/48"},
	}
	for _, four := range order {
		all = append(all, rapid.SampledFrom(of[four]).Draw(t, "own"))
	}
	return all
}
