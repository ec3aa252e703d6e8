package podgc

import (
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	deleted = "pod_gc_collector_force_delete_pods_total"
	failed  = "pod_gc_collector_force_delete_pod_errors_total"
)

// metrics are upstream's, with its labels, one of which is the namespace.
//
// Upstream: pkg/controller/podgc/metrics. Some that could not be deleted are among
// those that were, there.
var metrics = []reconcile.Metric{
	{Name: deleted, Sort: reconcile.Counter, Labels: []string{"namespace", "reason"}, Help: "Pods that were deleted by force, by reason."},
	{Name: failed, Sort: reconcile.Counter, Labels: []string{"namespace", "reason"}, Help: "Forced deletions of pods that failed."},
}

// counted adds the figures of the deletes to a decision.
func counted(reason string, d reconcile.Decision) reconcile.Decision {
	for _, c := range d.Commands {
		if c.Verb == events.VerbDelete {
			labels := []string{c.Namespace, reason}
			d.Figures = append(d.Figures, reconcile.Figure{Metric: deleted, Value: 1, Labels: labels, Of: c.Ref()},
				reconcile.Figure{Metric: failed, Value: 1, Labels: labels, Of: c.Ref(), Failed: true})
		}
	}
	return d
}
