package endpointslice

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Hints by capacity give each zone a share of the endpoints in proportion to its CPU, and
// prefer endpoints in that zone.
//
// Upstream: k8s.io/endpointslice/topologycache.

// overload is the fraction by which an endpoint's load may exceed its share.
const overload = 0.2

// byCapacity reports whether a service wants hints by capacity. Upstream: the older
// annotation goes before the newer one.
func byCapacity(svc *corev1.Service) bool {
	mode, ok := svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !ok {
		mode = svc.Annotations[corev1.AnnotationTopologyMode]
	}
	return mode == "Auto" || mode == "auto"
}

// capacity returns the CPU of each zone, in thousandths. It is nil unless the zone and
// the CPU of every ready node outside the control plane are known, in at least two zones.
func capacity(nodes []*corev1.Node) map[string]int64 {
	byZone := map[string]int64{}
	for _, n := range nodes {
		w := weighed(n)
		if !w.counts {
			continue
		}
		if w.zone == "" || w.cpu == 0 {
			return nil
		}
		byZone[w.zone] += w.cpu
	}
	if len(byZone) < 2 {
		return nil
	}
	return byZone
}

// weight is what a node contributes to the capacity of its zone.
type weight struct {
	counts bool
	zone   string
	cpu    int64
}

func weighed(n *corev1.Node) (w weight) {
	if n == nil || controlPlane(n) || !nodeReady(n) {
		return w
	}
	return weight{counts: true, zone: zone(n), cpu: n.Status.Allocatable.Cpu().MilliValue()}
}

func controlPlane(n *corev1.Node) bool {
	_, is := n.Labels["node-role.kubernetes.io/control-plane"]
	_, was := n.Labels["node-role.kubernetes.io/master"]
	return is || was
}

func nodeReady(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// share is the number of endpoints that a zone should have (want), and its maximum (most).
type share struct {
	most int
	want float64
}

// shares divides a number of endpoints among the zones; because is the reason if that is not possible.
func (v View) shares(count int) (shares map[string]share, because string) {
	zones := slices.Sorted(maps.Keys(v.Capacity))
	total := int64(0)
	for _, cpu := range v.Capacity {
		total += cpu
	}
	switch {
	case len(zones) == 0 || total == 0:
		return nil, "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
	case len(zones) > count:
		return nil, fmt.Sprintf("Insufficient number of endpoints (%d endpoints, %d zones)", count, len(zones))
	}
	shares, least := map[string]share{}, map[string]int{}
	spare := count
	for _, zone := range zones {
		want := float64(v.Capacity[zone]) / float64(total) * float64(count)
		least[zone] = int(math.Ceil(want * (1 / (1 + overload))))
		shares[zone] = share{want: math.Max(want, float64(least[zone]))}
		spare -= least[zone]
	}
	if spare < 0 {
		return nil, fmt.Sprintf("Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (%d endpoints, %d zones)", count, len(zones))
	}
	for _, zone := range zones {
		shares[zone] = share{most: least[zone] + spare, want: shares[zone].want}
	}
	return shares, ""
}

// spread distributes the ready endpoints of a family to the zones. It returns [hinted],
// or the reason why there are no hints.
func (v View) spread(c *changes) string {
	count := 0
	for _, slice := range slices.Concat(c.create, c.update, c.same) {
		for i := range slice.Endpoints {
			if ready(&slice.Endpoints[i]) {
				count++
			}
		}
	}
	shares, because := v.shares(count)
	if shares == nil {
		return c.unhint(because)
	}
	given := c.settled(shares)
	for _, slice := range c.moving() {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			switch {
			case !ready(e):
			case e.Zone == nil || *e.Zone == "":
				return c.unhint("One or more endpoints do not have a zone specified")
			default:
				given[*e.Zone]++
				e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *e.Zone}}}
			}
		}
	}
	c.redistribute(deals(shares, given))
	if len(given) == 0 {
		return c.unhint("No hints allocated for zones")
	}
	return hinted
}

// settled counts, by zone, the hints of the unchanged slices. It moves slices with
// unsuitable hints to the changing ones.
func (c *changes) settled(shares map[string]share) map[string]int {
	given := map[string]int{}
	var same []*discoveryv1.EndpointSlice
	for _, slice := range c.same {
		gives, ok := givenBy(slice, shares, given)
		if !ok {
			c.update = append(c.update, slice.DeepCopy())
			continue
		}
		same = append(same, slice)
		for zone, count := range gives {
			given[zone] += count
		}
	}
	c.same = same
	return given
}

func givenBy(slice *discoveryv1.EndpointSlice, shares map[string]share, given map[string]int) (gives map[string]int, ok bool) {
	gives = map[string]int{}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if !ready(e) {
			continue
		}
		if e.Hints == nil || len(e.Hints.ForZones) == 0 {
			return nil, false
		}
		for _, z := range e.Hints.ForZones {
			gives[z.Name]++
		}
	}
	for zone, count := range gives {
		if s, known := shares[zone]; !known || count+given[zone] > s.most {
			return nil, false
		}
	}
	return gives, true
}

// deals returns how many endpoints each zone gives away, and how many each takes:
// repeatedly one from the zone with the largest excess to the one with the largest lack,
// until the rest is too small.
func deals(shares map[string]share, given map[string]int) (gives, takes map[string]int) {
	over, under := map[string]float64{}, map[string]float64{}
	for zone, s := range shares {
		switch has := float64(given[zone]); {
		case has > s.want:
			over[zone] = has - s.want
		case has < s.want:
			under[zone] = s.want - has
		}
	}
	gives, takes = map[string]int{}, map[string]int{}
	for {
		giver, much := greatest(over)
		receiver, little := greatest(under)
		if giver == "" || receiver == "" || much < 1 && little < 1 || much < 0.5 || little < 0.5 {
			return gives, takes
		}
		gives[giver]++
		takes[receiver]++
		over[giver]--
		under[receiver]--
	}
}

// greatest returns the zone with the greatest value above 0, by name among equals.
func greatest(values map[string]float64) (zone string, value float64) {
	for _, z := range slices.Sorted(maps.Keys(values)) {
		if values[z] > value {
			zone, value = z, values[z]
		}
	}
	return zone, value
}

// redistribute changes hints in slices that change anyway.
func (c *changes) redistribute(gives, takes map[string]int) {
	for _, slice := range c.moving() {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if !ready(e) || e.Zone == nil || gives[*e.Zone] == 0 {
				continue
			}
			for _, receiver := range slices.Sorted(maps.Keys(takes)) {
				if takes[receiver] > 0 {
					e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: receiver}}}
					gives[*e.Zone]--
					takes[receiver]--
					break
				}
			}
		}
	}
}
