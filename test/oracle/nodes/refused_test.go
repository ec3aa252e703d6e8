package nodes_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/nodes"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
)

// The requests about nodes and their pods that may be refused: taints and labels, the status of silent nodes,
// and the readiness of pods.
var nodeRequests = []stage.Refusal{
	{Verb: plan.Patch, Also: plan.Update, Kind: kinds.Nodes.Name},
	{Verb: plan.Patch, Also: plan.Update, Kind: kinds.Nodes.Name, Status: true},
	{Verb: plan.Patch, Also: plan.Update, Kind: kinds.Pods.Name, Status: true},
}

// TestRefusedNodesLiveAsUpstreams refuses writes about nodes and their pods. The status of silent nodes is
// refused only temporarily: if it can never be written, upstream leaves these nodes out of the state of their
// zone.
func TestRefusedNodesLiveAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 20)
	rapid.Check(t, func(r *rapid.T) {
		refused := oracletest.RefusalOf(r, nodeRequests)
		if refused.Kind == kinds.Nodes.Name && refused.Status && refused.Times > 2 {
			exemption.Uses("silence-that-cannot-be-said")
			refused.Times = 2
		}
		anyFleet(r).livesAlike(t, r, refused)
	})
}

// TestSilentNodesCountThoughItCannotBeSaid shows what docs/differences.md says about silent nodes whose
// status cannot be written: they count as not ready in their zone, and the pods of a node that reports itself
// as not ready stay if most others are silent.
func TestSilentNodesCountThoughItCannotBeSaid(t *testing.T) {
	f := &fleet{out: map[string]bool{}}
	for range 6 {
		f.add("east", "", true, 0)
	}
	f.chapter()
	for _, name := range []string{"n1", "n2", "n3"} {
		f.does(func(k *nodes.Kubelets) { k.Silent[name] = true }, "%s falls silent", name)
	}
	f.chapter()
	f.does(func(k *nodes.Kubelets) {
		k.Told["n0"] = true
		k.Report("n0", func(n *corev1.Node) { say(n, corev1.NodeReady, corev1.ConditionFalse) })
	}, "n0 says that it is not ready")
	f.chapter()
	refused := stage.Refusal{Verb: plan.Patch, Also: plan.Update, Kind: kinds.Nodes.Name, Status: true, Times: 1 << 30, Answer: stage.Refusals(plan.Patch)[0]}
	diff, err := nodes.Cluster{Config: f.config, Chapters: f.chapters, Refused: refused}.Compare(t)
	if want := "after chapter 2:\n- n0 taint node.kubernetes.io/not-ready=:NoExecute\n"; err != nil || diff != want {
		t.Errorf("%v, %q, want %q", err, diff, want)
	}
}

// TestSilenceThatCannotBeSaidStopsEvictions: if the last nodes with a ready status are silent, and that can
// never be written, no pods are evicted until a node reports again.
func TestSilenceThatCannotBeSaidStopsEvictions(t *testing.T) {
	f := &fleet{out: map[string]bool{}}
	f.add("east", "", false, 1)
	f.add("east", "", true, 1)
	f.add("west", "", true, 1)
	f.add("west", "", false, 1) // so that the zone is not new when n2 is back
	f.chapter()
	for _, name := range []string{"n1", "n2"} {
		f.does(func(k *nodes.Kubelets) { k.Silent[name] = true }, "%s falls silent", name)
	}
	f.chapter()
	f.does(func(k *nodes.Kubelets) { k.Silent["n2"] = false }, "n2 is back")
	f.chapter()
	refused := stage.Refusal{Verb: plan.Patch, Also: plan.Update, Kind: kinds.Nodes.Name, Status: true, Times: 1 << 30, Answer: stage.Refusals(plan.Patch)[0]}
	diff, err := nodes.Cluster{Config: f.config, Chapters: f.chapters, Refused: refused}.Compare(t)
	if err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
}

// TestRefusedNodesBite: a controller that gives up at a refusal leaves nodes in another state than upstream,
// for every kind of refusal.
func TestRefusedNodesBite(t *testing.T) {
	fleets := rapid.Custom(anyFleet)
	for _, request := range nodeRequests {
		request.Times, request.Answer = 2, stage.Refusals(request.Verb)[0]
		t.Run(fmt.Sprint(request.Kind, request.Status), func(t *testing.T) {
			for seed := range oracletest.Enough {
				f := fleets.Example(seed)
				diff, err := nodes.Cluster{Config: f.config, Chapters: f.chapters, Refused: request, Changed: oracletest.GiveUp}.Compare(t)
				if err != nil {
					t.Fatal(err)
				}
				if diff != "" {
					return
				}
			}
			t.Errorf("nothing was noticed in %d lives", oracletest.Enough)
		})
	}
}
