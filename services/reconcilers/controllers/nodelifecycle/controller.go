// Package nodelifecycle sees to it that everybody knows how the nodes are.
//
// What a node says of itself becomes taints that keep new pods away, and a node that
// has said nothing for a while is said to be unknown; its pods are said not to be
// ready, for its kubelet will not say so. Nodes that are not ready for longer get
// taints that drive pods away, one node after the other: so few at a time in each
// zone as the zone is badly off, and none at all when no node of the cluster is ready,
// for then it is not the nodes that are to blame.
//
//	a node                              a zone
//	  taints that say what it says        who has been silent for too long is unknown
//	  labels of old and of today          who is not ready loses its pods, one by one
//	  its pods, when it is silent
//
// Silence is judged by what was recorded: when the watcher heard the node or its lease
// the last time, and for how long it has heard leases without a break. So a node is
// silent only where others were heard meanwhile, of which the API server's own lease
// is always one. A watcher that was away, an API server that was, or a bus, make
// no node silent: the time begins anew when a node is heard again. And a replica that
// starts knows as much as one that ran all along: upstream forgets everything at a change
// of leaders, takes the taints off all nodes, and begins again.
//
// Leases make no turns, as many as they are. A zone is looked at when the first of
// its nodes could have been silent for too long, which with nodes that live is every
// forty seconds.
package nodelifecycle

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config is what the controller needs to know. What is 0 is upstream's default.
type Config struct {
	// Grace is for how long a node may be silent (50 s), Startup for how long one that
	// has never said anything (60 s).
	Grace   time.Duration `json:"grace,omitempty"`
	Startup time.Duration `json:"startup,omitempty"`
	// Rate is of how many nodes of a zone the pods go in a second (0.1), Secondary the
	// same where many are not ready (0.01). Less than 0: of none.
	Rate      float32 `json:"rate,omitempty"`
	Secondary float32 `json:"secondary,omitempty"`
	// Many is the part of a zone's nodes that is not ready where many are (0.55), and
	// Large how many nodes a zone has more than, for any pods to go then (50; less than
	// 0: whatever it has).
	Many  float32 `json:"many,omitempty"`
	Large int     `json:"large,omitempty"`
}

// Upstream: pkg/controller/nodelifecycle/config/v1alpha1, and the flags' defaults.
func (c Config) filled() Config {
	return Config{
		Grace: cmp.Or(c.Grace, 50*time.Second), Startup: cmp.Or(c.Startup, time.Minute),
		Rate: cmp.Or(c.Rate, 0.1), Secondary: cmp.Or(c.Secondary, 0.01),
		Many: cmp.Or(c.Many, 0.55), Large: cmp.Or(c.Large, 50),
	}
}

// Settings are a configuration as turns record it.
type Settings struct {
	Nodes Config `json:"nodes"`
}

// New makes the controller. A key is a node or a zone.
func New(config Config) reconcile.Controller[View] {
	config = config.filled()
	return reconcile.Controller[View]{
		Name:     "node-lifecycle-controller",
		Aliases:  []string{"nodelifecycle"},
		Identity: "node-controller",
		Source:   "node-controller",
		Queue:    "node_lifecycle_controller",
		Owns:     &kinds.Nodes.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Nodes.Kind, Keys: keysOfNode},
			{Kind: kinds.Pods.Kind, Keys: keysOfPod},
			{Kind: kinds.Leases.Kind},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbPatch, Kind: kinds.Nodes.Name, Fields: append([]string{".spec.taints"}, labelsOfOld()...), Unchanged: true,
				Elements: []reconcile.Elements{{Path: ".spec.taints", By: "key", One: taints()}}},
			{Verb: events.VerbPatch, Kind: kinds.Nodes.Name, Subresource: "status", Fields: []string{".status.conditions"}, Unchanged: true,
				Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: namesOf(stopped)}, {Path: ".status.conditions[*].status", One: []string{string(corev1.ConditionUnknown)}}}},
			{Verb: events.VerbPatch, Kind: kinds.Pods.Name, Subresource: "status", Fields: []string{".status.conditions"}, Unchanged: true,
				Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{string(corev1.PodReady)}}, {Path: ".status.conditions[*].status", One: []string{string(corev1.ConditionFalse)}}}},
		},
		Tells: reconcile.Tells{
			{Kind: kinds.Nodes.Kind, Reasons: []string{"RegisteredNode", "RemovingNode", "NodeNotReady"}},
			{Kind: kinds.Pods.Kind, Reasons: []string{"NodeNotReady"}},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  reconcile.Body(Settings{config}),
		Observe:   config.observe,
		Decide:    config.decide,
	}
}

func (c Config) decide(v View, now time.Time) reconcile.Decision {
	switch {
	case v.Zone != nil:
		return v.decideZone(c, now)
	case v.Node != nil:
		return reconcile.Join(v.mark(now), v.report(now))
	default:
		return v.farewell()
	}
}

// labelsOfOld are the paths of the labels that are kept as those of today are.
func labelsOfOld() (paths []string) {
	for _, a := range aliases {
		paths = append(paths, ".metadata.labels['"+a.old+"']")
	}
	return paths
}

func namesOf(conditions []corev1.NodeConditionType) (names []string) {
	for _, c := range conditions {
		names = append(names, string(c))
	}
	return names
}
