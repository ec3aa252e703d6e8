// Package nodeipam gives every node one range of pod addresses from each range of the cluster.
//
// No two nodes may have the same range, with any number of reconcilers and writers, and however
// late a view is. Three things guarantee that:
//
//   - All nodes are one key. Its turns do not overlap: one is decided when everything that the one
//     before did has come back.
//   - A range that was offered to a node is kept for it until the node is seen with a range, or is
//     deleted. A request that was given up may still be carried out later, and the memory of the
//     last turn ([Memory]) holds the offers. The controller offers the node the same range again.
//   - The writer carries out a command only if no other node has an address in its range, in a live
//     list of the nodes just before. So if a view lacks a range that another program gave to a node,
//     the writer refuses the command, and no range gets two nodes.
//
// A node keeps its ranges, because the API server lets no client change them. The controller does
// not assign ranges that nodes already have, those of Services, or anything that overlaps them.
// The free ranges follow from the existing nodes, so a range is free again when its node is
// deleted, and a restart loses nothing. Ranges are assigned in turn, so that a freed one is the
// last to be assigned again.
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

// Config is the configuration of the controller.
type Config struct {
	// Cluster are the ranges of the cluster: one, or one of each family.
	Cluster []Range `json:"cluster,omitempty"`
	// Services are the ranges of Services, which no node gets.
	Services []string `json:"services,omitempty"`
}

// Range is a range of the cluster, and the prefix length of a node's part of it.
type Range struct {
	CIDR string `json:"cidr"`
	Mask int    `json:"mask"`
}

// Settings is the configuration as turns record it.
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

// New returns the controller. Its only key is all nodes.
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
		Events:    reconcile.EventPromises{{Kind: kinds.Nodes.Kind, Reasons: []string{notAvailable, failed}}},
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
	// Told are the nodes for which a missing range was reported, since a moment.
	Told Told `json:"told,omitzero"`
}

// Node is the part of a node on which decisions depend.
type Node struct {
	Name    string    `json:"name"`
	UID     types.UID `json:"uid"`
	Created time.Time `json:"created,omitzero"`
	Ranges  []string  `json:"ranges,omitempty"`
	Deleted bool      `json:"deleted,omitempty"`
}

// Memory is what one turn passes on to the next.
type Memory struct {
	// Last is the last assigned range of each cluster range. The search for the next begins after
	// it.
	Last []string `json:"last,omitempty"`
	// Kept are the ranges offered to nodes that may not have them yet; the newest offer to a node
	// comes last.
	Kept []Offer `json:"kept,omitempty"`
}

// Offer is what was offered to a node.
type Offer struct {
	UID    types.UID `json:"uid"`
	Ranges []string  `json:"ranges"`
}

// Told is the nodes for which a missing range was reported, and since when.
type Told struct {
	Nodes []types.UID `json:"nodes,omitempty"`
	Since time.Time   `json:"since,omitzero"`
}

// keys maps a node to the key of all nodes if the node was created or deleted, or if its ranges
// changed. Other changes of a node do not matter, and are frequent.
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
	noted(s, k, events.LaneWrite, &v.Memory)
	if told := noted(s, k, events.LaneStatus, &v.Told); !v.Told.Since.IsZero() {
		v.Told.Since = told.Noted(v.Told.Since)
	}
	return v, k == all
}

// noted reads the note of a lane's last turn, which any of its results may hold.
func noted(s reconcile.Snapshot, k events.Key, lane events.Lane, note any) events.Outcome {
	last, _ := reconcile.LastOfAny(s, k, lane)
	for _, r := range last.Results {
		if r.Answer != nil && len(r.Answer.Note) > 0 && json.Unmarshal(r.Answer.Note, note) == nil {
			break
		}
	}
	return last
}
