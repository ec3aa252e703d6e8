package endpointslicemirroring

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	subsystem = "endpoint_slice_mirroring_controller_"

	addedPerSync   = subsystem + "endpoints_added_per_sync"
	updatedPerSync = subsystem + "endpoints_updated_per_sync"
	removedPerSync = subsystem + "endpoints_removed_per_sync"
	skippedPerSync = subsystem + "addresses_skipped_per_sync"
	desired        = subsystem + "endpoints_desired"
	actualSlices   = subsystem + "num_endpoint_slices"
	desiredSlices  = subsystem + "desired_endpoint_slices"
	changed        = subsystem + "changes"
)

// metrics has upstream's metrics.
//
// Upstream: pkg/controller/endpointslicemirroring/metrics. What is counted "per sync"
// is there counted of syncs that change nothing, too.
var metrics = []reconcile.Metric{
	{Name: addedPerSync, Buckets: endpoint.PerSync(), Help: "Endpoints that one sync of mirrored EndpointSlices added."},
	{Name: updatedPerSync, Buckets: endpoint.PerSync(), Help: "Endpoints that one sync of mirrored EndpointSlices updated."},
	{Name: removedPerSync, Buckets: endpoint.PerSync(), Help: "Endpoints that one sync of mirrored EndpointSlices removed."},
	{Name: skippedPerSync, Buckets: endpoint.PerSync(), Help: "Addresses that one sync did not mirror because they are invalid or too many."},
	{Name: desired, Sort: reconcile.Gauge, Help: "Endpoints that should be mirrored."},
	{Name: actualSlices, Sort: reconcile.Gauge, Help: "EndpointSlices that mirror Endpoints."},
	{Name: desiredSlices, Sort: reconcile.Gauge, Help: "The smallest number of EndpointSlices that can mirror all Endpoints."},
	{Name: changed, Sort: reconcile.Counter, Labels: []string{"operation"}, Help: "Changes of EndpointSlices that mirror Endpoints."},
}

// figures returns the metric values of the changes together.
func (c changes) figures(left leftOut) []reconcile.Figure {
	return []reconcile.Figure{
		{Metric: addedPerSync, Value: float64(c.added)}, {Metric: updatedPerSync, Value: float64(c.updated)},
		{Metric: removedPerSync, Value: float64(c.removed)}, {Metric: skippedPerSync, Value: float64(left.all)},
	}
}

// counted returns the metric values of the single changes, each of which counts when it is applied.
func counted(commands []events.Command) []reconcile.Figure {
	figures := make([]reconcile.Figure, 0, len(commands))
	for _, c := range commands {
		figures = append(figures, reconcile.Figure{Metric: changed, Value: 1, Labels: []string{string(c.Verb)}, Of: c.Ref()})
	}
	return figures
}

// totals returns what these Endpoints contribute to the gauges.
func totals(wanted []*discoveryv1.EndpointSlice) []reconcile.Figure {
	endpoints := 0
	for _, slice := range wanted {
		endpoints += len(slice.Endpoints)
	}
	return []reconcile.Figure{
		{Metric: desired, Value: float64(endpoints)}, {Metric: actualSlices, Value: float64(len(wanted))},
		{Metric: desiredSlices, Value: float64(len(wanted))},
	}
}
