package endpointslice

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	subsystem = "endpoint_slice_controller_"

	addedPerSync   = subsystem + "endpoints_added_per_sync"
	removedPerSync = subsystem + "endpoints_removed_per_sync"
	changedPerSync = subsystem + "endpointslices_changed_per_sync"
	desired        = subsystem + "endpoints_desired"
	actualSlices   = subsystem + "num_endpoint_slices"
	desiredSlices  = subsystem + "desired_endpoint_slices"
	changed        = subsystem + "changes"
	byDistribution = subsystem + "services_count_by_traffic_distribution"
)

// metrics has upstream's metrics.
//
// Upstream: k8s.io/endpointslice/metrics. What is counted "per sync" is there counted of
// syncs that change nothing, too.
var metrics = []reconcile.Metric{
	{Name: addedPerSync, Buckets: endpoint.PerSync(), Help: "Endpoints that one sync of a service added."},
	{Name: removedPerSync, Buckets: endpoint.PerSync(), Help: "Endpoints that one sync of a service removed."},
	{Name: changedPerSync, Buckets: defaultBuckets, Labels: []string{"topology", "traffic_distribution"}, Help: "EndpointSlices that one sync of a service changed."},
	{Name: desired, Sort: reconcile.Gauge, Help: "Endpoints of services."},
	{Name: actualSlices, Sort: reconcile.Gauge, Help: "EndpointSlices of services."},
	{Name: desiredSlices, Sort: reconcile.Gauge, Help: "The smallest number of EndpointSlices that can hold the endpoints of all services."},
	{Name: changed, Sort: reconcile.Counter, Labels: []string{"operation"}, Help: "Changes of EndpointSlices."},
	{Name: byDistribution, Sort: reconcile.Gauge, Labels: []string{"traffic_distribution"}, Help: "Services that say which of their endpoints are to be preferred, by what they say."},
}

// defaultBuckets are Prometheus' defaults.
var defaultBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// counted returns the metric values of the changes: each counts when it is applied, and
// their sum counts once.
func (v View) counted(commands []events.Command, all changes) []reconcile.Figure {
	was, now := len(identities(v.Slices)), identities(slices.Concat(all.same, all.update, all.create))
	stayed := 0
	for id := range identities(v.Slices) {
		if now[id] {
			stayed++
		}
	}
	topology := "Disabled"
	if byCapacity(v.Service) {
		topology = "Auto"
	}
	figures := []reconcile.Figure{
		{Metric: addedPerSync, Value: float64(len(now) - stayed)}, {Metric: removedPerSync, Value: float64(was - stayed)},
		{Metric: changedPerSync, Value: float64(len(commands)), Labels: []string{topology, v.distribution()}},
	}
	for _, c := range commands {
		if c.Kind == kinds.EndpointSlices.Name {
			figures = append(figures, reconcile.Figure{Metric: changed, Value: 1, Labels: []string{string(c.Verb)}, Of: c.Ref()})
		}
	}
	return figures
}

func identities(all []*discoveryv1.EndpointSlice) map[string]bool {
	found := map[string]bool{}
	for _, slice := range all {
		for _, e := range slice.Endpoints {
			found[string(slice.AddressType)+" "+endpoint.PortsKey(slice.Ports)+" "+endpoint.Identity(e)] = true
		}
	}
	return found
}

// totals returns what a service contributes to the gauges.
func (v View) totals(all changes) []reconcile.Figure {
	endpoints, actual, byGroup := 0, 0, map[string]int{}
	for _, some := range [][]*discoveryv1.EndpointSlice{all.same, all.update, all.create} {
		for _, slice := range some {
			actual, endpoints = actual+1, endpoints+len(slice.Endpoints)
			byGroup[string(slice.AddressType)+" "+endpoint.PortsKey(slice.Ports)] += len(slice.Endpoints)
		}
	}
	enough := 0
	for _, n := range byGroup {
		enough += (n + v.Max - 1) / max(v.Max, 1)
	}
	figures := []reconcile.Figure{
		{Metric: desired, Value: float64(endpoints)}, {Metric: actualSlices, Value: float64(actual)},
		{Metric: desiredSlices, Value: float64(cmp.Or(enough, 1))}, // a service always has one slice
	}
	if how := v.distribution(); how != "" {
		figures = append(figures, reconcile.Figure{Metric: byDistribution, Value: 1, Labels: []string{how}})
	}
	return figures
}

// distribution returns the service's traffic distribution, or "" if it is not a known one.
func (v View) distribution() string {
	switch how := ptr.Deref(v.Service.Spec.TrafficDistribution, ""); how {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode:
		return how
	default:
		return ""
	}
}
