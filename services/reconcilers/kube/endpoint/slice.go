// Package endpoint knows the two kinds of objects that hold the endpoints of services:
// EndpointSlices, and the older Endpoints with their subsets.
package endpoint

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// KeysOfSlice maps a slice with a manager's label to the name of its service, and to
// that of its earlier service.
func KeysOfSlice(manager string) func(reconcile.Snapshot, reconcile.Object, reconcile.Object) []events.Key {
	return func(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
		var keys []events.Key
		for _, slice := range []reconcile.Object{now, was} {
			if slice.None() || slice.GetLabels()[discoveryv1.LabelManagedBy] != manager {
				continue
			}
			name := slice.GetLabels()[discoveryv1.LabelServiceName]
			if key := (events.Key{Namespace: slice.GetNamespace(), Name: name}); name != "" && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		return keys
	}
}

// Slices are the slices of a service with a manager's label, except for those that are
// being deleted.
func Slices(s reconcile.Snapshot, service events.Key, manager string) []*discoveryv1.EndpointSlice {
	var found []*discoveryv1.EndpointSlice
	for _, slice := range reconcile.List(s, kinds.EndpointSlices, service.Namespace) {
		if slice.Labels[discoveryv1.LabelServiceName] == service.Name && slice.Labels[discoveryv1.LabelManagedBy] == manager &&
			slice.DeletionTimestamp == nil {
			found = append(found, slice)
		}
	}
	return found
}

// PortsKey is a string that is equal for the same ports in any order.
func PortsKey(ports []discoveryv1.EndpointPort) string {
	keys := make([]string, 0, len(ports))
	for _, p := range ports {
		text, _ := json.Marshal(p) // four plain fields
		keys = append(keys, string(text))
	}
	slices.Sort(keys)
	return strings.Join(keys, ",")
}

// Identity identifies an endpoint; its other fields may change.
//
// Upstream: k8s.io/endpointslice/util, hashEndpoint.
func Identity(e discoveryv1.Endpoint) string {
	var ref corev1.ObjectReference
	if e.TargetRef != nil {
		ref = *e.TargetRef
	}
	addresses := slices.Sorted(slices.Values(e.Addresses))
	return strings.Join(append(addresses, ptr.Deref(e.Hostname, ""), ref.Namespace, ref.Name), " ")
}

// Equal compares the fields of an endpoint that may change, except for hints, which
// the code that sets them compares.
//
// Upstream: k8s.io/endpointslice/util, EndpointsEqualBeyondHash.
func Equal(a, b discoveryv1.Endpoint) bool {
	return ptr.Equal(a.NodeName, b.NodeName) && ptr.Equal(a.Zone, b.Zone) &&
		ptr.Equal(a.Conditions.Ready, b.Conditions.Ready) && ptr.Equal(a.Conditions.Serving, b.Conditions.Serving) &&
		ptr.Equal(a.Conditions.Terminating, b.Conditions.Terminating) && sameTarget(a.TargetRef, b.TargetRef)
}

// sameTarget ignores resource versions, which old slices may have.
func sameTarget(a, b *corev1.ObjectReference) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.ResourceVersion, y.ResourceVersion = "", ""
	return x == y
}

// Set holds endpoints that are not in a slice yet, in order.
type Set struct {
	order []string
	left  map[string]discoveryv1.Endpoint
}

// NewSet returns a set of endpoints; of two with the same identity the later counts.
func NewSet(endpoints []discoveryv1.Endpoint) *Set {
	s := &Set{left: make(map[string]discoveryv1.Endpoint, len(endpoints))}
	for _, e := range endpoints {
		key := Identity(e)
		if _, twice := s.left[key]; !twice {
			s.order = append(s.order, key)
		}
		s.left[key] = e
	}
	return s
}

// Len is how many endpoints are not in a slice yet.
func (s *Set) Len() int { return len(s.left) }

// Keep removes the endpoints of a slice from the set and returns them as they are now;
// touched reports whether one of them has changed.
func (s *Set) Keep(had []discoveryv1.Endpoint) (kept []discoveryv1.Endpoint, touched bool) {
	for _, old := range had {
		key := Identity(old)
		now, ok := s.left[key]
		if !ok {
			continue
		}
		delete(s.left, key)
		touched = touched || !Equal(old, now)
		kept = append(kept, now)
	}
	return kept, touched
}

// Take removes and returns the first count endpoints, or as many as are left.
func (s *Set) Take(count int) []discoveryv1.Endpoint {
	taken := make([]discoveryv1.Endpoint, 0, max(min(count, len(s.left)), 0))
	for len(s.order) > 0 && len(taken) < count {
		if e, ok := s.left[s.order[0]]; ok {
			taken = append(taken, e)
			delete(s.left, s.order[0])
		}
		s.order = s.order[1:]
	}
	return taken
}

// PerSync are upstream's histogram buckets for the endpoints that a sync changed.
func PerSync() []float64 {
	var bounds []float64
	for bound := 2.0; len(bounds) < 15; bound *= 2 {
		bounds = append(bounds, bound)
	}
	return bounds
}
