// Package nodelifecycle marks nodes that are unhealthy or silent, and evicts their pods.
//
// The controller turns the conditions of a node into taints that keep new pods away. It
// sets the conditions of a node without heartbeats to Unknown, and sets its pods to not
// ready, because the kubelet will not. A node that is not ready gets a NoExecute taint,
// which evicts its pods. The controller taints one node of a zone at a time. Its rate
// depends on how many nodes of the zone are not ready. It evicts nothing when no node of
// the cluster is ready, because then the nodes are not the cause.
//
//	a node                              a zone
//	  taints for its conditions           nodes that are silent for too long become unknown
//	  old and current labels              nodes that are not ready are tainted one by one
//	  its pods, when it is silent
//
// The controller judges silence by the record: when the watcher last heard the node or
// its lease, and since when the watcher has heard leases without a break. A node is
// therefore silent only if others, always including the API server's own lease, were
// heard meanwhile. An outage of the watcher, the API server or the bus makes no node
// silent: the time starts anew when the node is heard again. A replica that starts knows
// as much as one that ran all along. Upstream forgets everything at a change of leaders,
// takes the taints off all nodes, and begins again.
//
// Leases cause no turns, because there are so many. A zone gets a turn when the first of
// its nodes could have been silent for too long, which is every forty seconds while the
// nodes live.
package nodelifecycle

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config is the configuration of the controller. Zero values mean upstream's defaults.
type Config struct {
	// Grace is for how long a node may be silent (50 s), Startup for how long a node may
	// that has never posted a status (60 s).
	Grace   time.Duration `json:"grace,omitempty"`
	Startup time.Duration `json:"startup,omitempty"`
	// Rate is how many nodes of a zone are tainted NoExecute per second (0.1), Secondary
	// the same where many nodes are not ready (0.01). Less than 0: none.
	Rate      float32 `json:"rate,omitempty"`
	Secondary float32 `json:"secondary,omitempty"`
	// Many is the share of a zone's nodes that must be not ready for Secondary to apply
	// (0.55). A zone with many such nodes must have more than Large nodes for any
	// eviction (50; less than 0: no such minimum).
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

// Settings is the configuration as turns record it.
type Settings struct {
	Nodes Config `json:"nodes"`
}

// New returns the controller. A key is a node or a zone.
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
		Events: reconcile.EventPromises{
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

// labelsOfOld are the paths of the old labels that must equal the current ones.
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
