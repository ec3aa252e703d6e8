package replicas

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// ageRatio is how much older than the youngest pod the deleted pods are.
//
// Upstream: pkg/controller/replicaset/metrics.
var ageRatio = reconcile.Metric{
	Name:    "replicaset_controller_sorting_deletion_age_ratio",
	Help:    "The age of a ready pod that was chosen for deletion, divided by that of the youngest ready pod of its ReplicaSet, rounded down; below 2 as a rule.",
	Buckets: []float64{0.25, 0.5, 1, 2, 4, 8},
}

// ageRatios are the ratios of the ready pods among those to be deleted. There are none if all
// pods are deleted, because then nothing was chosen.
//
// Upstream: pkg/controller/replicaset/replica_set.go, which divides whole
// milliseconds.
func ageRatios(pods, toDelete []*corev1.Pod, now time.Time) []reconcile.Figure {
	if len(toDelete) == len(pods) {
		return nil
	}
	var youngest time.Time
	for _, p := range pods {
		if p.CreationTimestamp.After(youngest) && pod.Ready(p) {
			youngest = p.CreationTimestamp.Time
		}
	}
	least := now.Sub(youngest).Milliseconds()
	if least <= 0 {
		return nil
	}
	var ratios []reconcile.Figure
	for _, p := range toDelete {
		if pod.Ready(p) {
			ratio := now.Sub(p.CreationTimestamp.Time).Milliseconds() / least
			ratios = append(ratios, reconcile.Figure{Metric: ageRatio.Name, Value: float64(ratio)})
		}
	}
	return ratios
}
