package oracle_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle"
)

// The requests about nodes and their pods of which some are refused: taints and labels, the
// reports of silent nodes, and that pods are not ready.
var nodeRequests = []oracle.Refusal{
	{Verb: plan.Patch, Also: plan.Update, Kind: kinds.Nodes.Name},
	{Verb: plan.Patch, Also: plan.Update, Kind: kinds.Nodes.Name, Status: true},
	{Verb: plan.Patch, Also: plan.Update, Kind: kinds.Pods.Name, Status: true},
}

// TestRefusedNodesLiveAsUpstreams has an API server refuse what is written of nodes and their
// pods.
func TestRefusedNodesLiveAsUpstreams(t *testing.T) {
	fewer(t, 20)
	rapid.Check(t, func(r *rapid.T) { anyFleet(r).livesAlike(t, r, refusalOf(r, nodeRequests)) })
}
