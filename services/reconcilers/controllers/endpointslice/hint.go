package endpointslice

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// hint sets the hints of a family's endpoints, as the service asks for them. For hints by
// capacity it returns the value of [Told].Hints.
func (v View) hint(c *changes) string {
	defer c.calm(v.Slices)
	switch distribution := v.Service.Spec.TrafficDistribution; {
	case byCapacity(v.Service):
		return v.spread(c)
	case distribution != nil && near(*distribution):
		nodes := *distribution == corev1.ServiceTrafficDistributionPreferSameNode
		c.rehint(func(e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
			if !ready(e) {
				return e.Hints
			}
			return nearest(e, nodes)
		})
		return ""
	default:
		return c.unhint("")
	}
}

func near(distribution string) bool {
	return distribution == corev1.ServiceTrafficDistributionPreferClose ||
		distribution == corev1.ServiceTrafficDistributionPreferSameZone ||
		distribution == corev1.ServiceTrafficDistributionPreferSameNode
}

// nearest returns a hint with the endpoint's own zone and, if nodes is true, its node.
//
// Upstream: k8s.io/endpointslice/trafficdist.
func nearest(e *discoveryv1.Endpoint, nodes bool) *discoveryv1.EndpointHints {
	var h discoveryv1.EndpointHints
	if e.Zone != nil {
		h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	if e.NodeName != nil && nodes {
		h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
	}
	if h.ForZones == nil && h.ForNodes == nil {
		return nil
	}
	return &h
}

// unhint removes all hints.
func (c *changes) unhint(because string) string {
	c.rehint(func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints { return nil })
	return because
}

// rehint sets the hints of every endpoint. A slice with other hints changes for that alone.
func (c *changes) rehint(want func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints) {
	var same []*discoveryv1.EndpointSlice
	for _, slice := range c.same {
		if right(slice, want) {
			same = append(same, slice)
		} else {
			c.update = append(c.update, slice.DeepCopy())
		}
	}
	c.same = same
	for _, slice := range c.moving() {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Hints = want(&slice.Endpoints[i])
		}
	}
}

func right(slice *discoveryv1.EndpointSlice, want func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints) bool {
	for i := range slice.Endpoints {
		if !sameHints(slice.Endpoints[i].Hints, want(&slice.Endpoints[i])) {
			return false
		}
	}
	return true
}

func sameHints(a, b *discoveryv1.EndpointHints) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.ForZones, b.ForZones) && slices.Equal(a.ForNodes, b.ForNodes)
}

// calm drops updates that change nothing.
func (c *changes) calm(had []*discoveryv1.EndpointSlice) {
	c.update = slices.DeleteFunc(c.update, func(next *discoveryv1.EndpointSlice) bool {
		at := slices.IndexFunc(had, func(s *discoveryv1.EndpointSlice) bool { return s.Name == next.Name })
		return at >= 0 && equality.Semantic.DeepEqual(had[at], next)
	})
}

// moving returns the slices that change in any case.
func (c *changes) moving() []*discoveryv1.EndpointSlice {
	return slices.Concat(c.create, c.update)
}

func ready(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready != nil && *e.Conditions.Ready }
