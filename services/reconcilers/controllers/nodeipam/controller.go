// Package nodeipam gives every node a range of addresses for its pods: one of each range of the
// cluster.
//
// No two nodes may have one range, with any number of reconcilers and writers, and however late
// a view is. Three things see to that:
//
//   - All nodes are one key. Its turns follow each other: one is decided when everything that
//     the one before did has come back.
//   - A range that was offered to a node is kept for it, until the node is seen with a range, or
//     is gone. A request that was given up may still be carried out later, and the memory of the
//     last turn ([Memory]) tells which those are. The node is offered the same range again.
//   - The writer carries out a command only if no other node has an address of its range. It has
//     listed the nodes live, just before. So a view that lacks what another program gave a node
//     makes a turn that is refused, and no range with two nodes.
//
// A node keeps what it has: the API server lets no client change its ranges. Those that nodes come
// with, those of Services, and whatever of them lies in a range of the cluster are left out. What
// is free follows from the nodes that there are, so a range is free again when its node is gone,
// and no restart forgets anything. Ranges are given in turn, so that one that has become free is
// the last to be given again.
package nodeipam

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config is what the controller needs to know.
type Config struct {
	// Cluster are the ranges of the cluster: one, or one of each family.
	Cluster []Range `json:"cluster,omitempty"`
	// Services are the ranges of Services, of which no node gets an address.
	Services []string `json:"services,omitempty"`
}

// Range is a range of the cluster, and the length of the prefix of a node's part of it.
type Range struct {
	CIDR string `json:"cidr"`
	Mask int    `json:"mask"`
}

// Settings are a configuration as turns record it.
type Settings struct {
	Ranges Config `json:"ranges"`
}

// The reasons of Events.
const (
	notAvailable = "CIDRNotAvailable"
	failed       = "CIDRAssignmentFailed"
)

// all is the key of all nodes.
var all = events.Key{Name: "ranges"}

// New makes the controller. Its one key is all nodes.
func New(config Config) reconcile.Controller[View] {
	return reconcile.Controller[View]{
		Name:     "node-ipam-controller",
		Aliases:  []string{"nodeipam"},
		Identity: "node-controller",
		Source:   "cidrAllocator",
		Queue:    "cidrallocator_node",
		Inputs:   []reconcile.Input{{Kind: kinds.Nodes.Kind, Keys: keys}},
		Writes: reconcile.Writes{{
			Verb: events.VerbPatch, Kind: kinds.Nodes.Name, Fields: []string{".spec.podCIDR", ".spec.podCIDRs"}, Adds: true, Unshared: true,
		}},
		Tells:     reconcile.Tells{{Kind: kinds.Nodes.Kind, Reasons: []string{notAvailable, failed}}},
		Remembers: true,
		Metrics:   metrics,
		Settings:  reconcile.Body(Settings{config}),
		Observe:   observe,
		Decide:    config.decide,
	}
}

// View is all nodes, and what is known of earlier turns.
type View struct {
	Nodes  []Node `json:"nodes"`
	Memory Memory `json:"memory,omitzero"`
	// Told are the nodes of which it was told that there is no range for them, since a moment.
	Told Told `json:"told,omitzero"`
}

// Node is what matters of a node.
type Node struct {
	Name    string    `json:"name"`
	UID     types.UID `json:"uid"`
	Created time.Time `json:"created,omitzero"`
	Ranges  []string  `json:"ranges,omitempty"`
	Deleted bool      `json:"deleted,omitempty"`
}

// Memory is what must not be forgotten from one turn to the next.
type Memory struct {
	// Last is the range of each of the cluster's that was given last. The next one is behind it.
	Last []string `json:"last,omitempty"`
	// Kept are the ranges that were offered to nodes that may not have them yet: of each node
	// the newest offer last.
	Kept []Offer `json:"kept,omitempty"`
}

// Offer is what was offered to a node.
type Offer struct {
	UID    types.UID `json:"uid"`
	Ranges []string  `json:"ranges"`
}

// Told is of whom it was told that there is no range for them, and since when.
type Told struct {
	Nodes []types.UID `json:"nodes,omitempty"`
	Since time.Time   `json:"since,omitzero"`
}

// keys asks for all nodes where one comes or goes, or its ranges change. What else becomes of a
// node is of no matter, and it happens often.
func keys(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*corev1.Node)
	node, _ := now.Object.(*corev1.Node)
	if before != nil && node != nil && before.UID == node.UID && slices.Equal(before.Spec.PodCIDRs, node.Spec.PodCIDRs) &&
		(before.DeletionTimestamp == nil) == (node.DeletionTimestamp == nil) {
		return nil
	}
	return []events.Key{all}
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	nodes := reconcile.List(s, kinds.Nodes, "")
	v := View{Nodes: make([]Node, 0, len(nodes))}
	for _, n := range nodes {
		v.Nodes = append(v.Nodes, Node{
			Name: n.Name, UID: n.UID, Created: n.CreationTimestamp.Time, Ranges: n.Spec.PodCIDRs, Deleted: n.DeletionTimestamp != nil,
		})
	}
	noted(s, k, events.Act, &v.Memory)
	if told := noted(s, k, events.Tell, &v.Told); !v.Told.Since.IsZero() {
		v.Told.Since = told.Noted(v.Told.Since)
	}
	return v, k == all
}

// noted reads the note that the last turn of a lane left, which each of its results may have.
func noted(s reconcile.Snapshot, k events.Key, lane events.Lane, note any) events.Outcome {
	last, _ := reconcile.LastOfAny(s, k, lane)
	for _, r := range last.Results {
		if r.Answer != nil && len(r.Answer.Note) > 0 && json.Unmarshal(r.Answer.Note, note) == nil {
			break
		}
	}
	return last
}
