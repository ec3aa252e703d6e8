package network

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

// EndpointsJudged judges Endpoints: they are deleted only when no Service has their name.
func EndpointsJudged(l *cluster.Look, f cluster.Findings) {
	if len(l.Deletes(kinds.Endpoints.Name)) > 0 && l.Has(kinds.Services.Name, l.Key.Namespace, l.Key.Name) {
		f.Breaks("I4", "deletes the Endpoints of a Service that is there")
	}
	for _, c := range l.Commands {
		var e corev1.Endpoints
		if c.Kind != kinds.Endpoints.Name || json.Unmarshal(c.Body, &e) != nil {
			continue
		}
		for _, subset := range e.Subsets {
			for _, a := range slices.Concat(subset.Addresses, subset.NotReadyAddresses) {
				answers(l, a.TargetRef, "Endpoints", f)
			}
		}
	}
}

// answers judges the target of an endpoint: a pod in the view.
func answers(l *cluster.Look, pod *corev1.ObjectReference, where string, f cluster.Findings) {
	if pod != nil && !slices.ContainsFunc(l.List(kinds.Pods.Name), func(p metav1.Object) bool { return p.GetUID() == pod.UID }) {
		f.Breaks("S1", "names %s in %s, which is gone", pod.Name, where)
	}
}

// ServedJudged judges EndpointSlices of pods: their targets are in the view, and no pod occurs
// twice in the slices of one turn.
func ServedJudged(l *cluster.Look, f cluster.Findings) {
	SlicesJudged("endpointslice-controller.k8s.io")(l, f)
	named := map[types.UID]bool{}
	for _, c := range l.Commands {
		var slice discoveryv1.EndpointSlice
		if c.Kind != kinds.EndpointSlices.Name || json.Unmarshal(c.Body, &slice) != nil {
			continue
		}
		for _, e := range slice.Endpoints {
			if answers(l, e.TargetRef, "a slice", f); e.TargetRef == nil {
				continue
			}
			if named[e.TargetRef.UID] {
				f.Breaks("S1", "names %s in two slices", e.TargetRef.Name)
			}
			named[e.TargetRef.UID] = true
		}
	}
}

// SlicesJudged judges EndpointSlices: a controller deletes only slices that it manages, of the
// Service that it was asked about.
func SlicesJudged(manager string) cluster.Judgement {
	return func(l *cluster.Look, f cluster.Findings) {
		gone := l.Deletes(kinds.EndpointSlices.Name)
		for _, obj := range l.List(kinds.EndpointSlices.Name) {
			labels := obj.GetLabels()
			if gone[obj.GetUID()] && (labels["endpointslice.kubernetes.io/managed-by"] != manager || labels["kubernetes.io/service-name"] != l.Key.Name) {
				f.Breaks("I4", "deletes %s, which has the labels %v", obj.GetName(), labels)
			}
		}
	}
}
