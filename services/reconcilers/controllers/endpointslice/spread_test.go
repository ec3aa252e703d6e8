package endpointslice

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// endpointsIn returns a slice with an endpoint for each word: "a", "b" and so on are
// zones, "-" is none, and upper case is not ready. After a colon follows the zone of its hint.
func endpointsIn(text string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for i, word := range strings.Fields(text) {
		zone, hint, hinted := strings.Cut(word, ":")
		e := discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.1.0.%d", i)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(zone == strings.ToLower(zone))},
		}
		if zone != "-" {
			e.Zone = ptr.To(strings.ToLower(zone))
		}
		if hinted {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: hint}}}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// hintsOf counts endpoints by their zone and that of their hint.
func hintsOf(all ...*discoveryv1.EndpointSlice) string {
	counts := map[string]int{}
	for _, s := range all {
		for _, e := range s.Endpoints {
			if e.Hints != nil {
				counts[ptr.Deref(e.Zone, "-")+e.Hints.ForZones[0].Name]++
			}
		}
	}
	var text []string
	for _, pair := range slices.Sorted(maps.Keys(counts)) {
		text = append(text, fmt.Sprintf("%s%d", pair, counts[pair]))
	}
	return strings.Join(text, " ")
}

// Each zone gets a share of the endpoints in proportion to its CPU, less by a fifth at
// most. Slices that do not change otherwise keep their hints as long as that holds.
//
// Upstream: topologycache, AddHints.
func TestHintsByCapacity(t *testing.T) {
	const few, none = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold", "One or more endpoints do not have a zone specified"
	n := func(zones string, counts ...int) string {
		var text string
		for i, count := range counts {
			text += strings.Repeat(zones[i:i+1]+" ", count)
		}
		return text
	}
	hintedIn := func(text string, all string) string { return strings.ReplaceAll(text, all+" ", all+":"+all+" ") }
	for what, c := range map[string]struct {
		cpus        map[string]int64
		same, moves string
		want        string // the hints
		because     string
		settled     bool // the unchanged slice stays
	}{
		"as many in each zone":             {map[string]int64{"a": 1, "b": 1}, "", n("ab", 2, 2), "aa2 bb2", hinted, false},
		"one too many":                     {map[string]int64{"a": 1, "b": 1}, "", n("ab", 4, 2), "aa3 ab1 bb2", hinted, false},
		"two too many, for two":            {map[string]int64{"a": 1, "b": 1, "c": 1}, "", n("abc", 6, 3, 3), "aa4 ab1 ac1 bb3 cc3", hinted, false},
		"one zone is larger":               {map[string]int64{"a": 3, "b": 1}, "", n("ab", 4, 4), "aa4 ba2 bb2", hinted, false},
		"parts of one are left":            {map[string]int64{"a": 2, "b": 1}, "", n("ab", 6, 4), "aa6 bb4", hinted, false},
		"parts of one beside a whole one":  {map[string]int64{"a": 2, "b": 1}, "", n("ab", 5, 5), "aa5 ba1 bb4", hinted, false},
		"one for two that lack a part":     {map[string]int64{"a": 1, "b": 1, "c": 1}, "", n("abc", 8, 6, 6), "aa7 ab1 bb6 cc6", hinted, false},
		"one for three that lack a half":   {map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1}, "", n("abcd", 7, 5, 5, 5), "aa6 ab1 bb5 cc5 dd5", hinted, false},
		"half of one is none":              {map[string]int64{"a": 1, "b": 1}, "", n("ab", 11, 10), "aa11 bb10", hinted, false},
		"the one who lacks most is first":  {map[string]int64{"a": 1, "b": 1, "c": 1}, "", n("abc", 5, 3, 2), "aa4 ac1 bb3 cc2", hinted, false},
		"an odd number of few":             {map[string]int64{"a": 1, "b": 1}, "", n("ab", 3, 2), "", few + " (5 endpoints, 2 zones)", false},
		"fewer than zones":                 {map[string]int64{"a": 1, "b": 1}, "", "a", "", "Insufficient number of endpoints (1 endpoints, 2 zones)", false},
		"nothing is known of nodes":        {nil, "", "a b", "", "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes", false},
		"nodes have no CPUs":               {map[string]int64{"a": 0, "b": 0}, "", "a b", "", "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes", false},
		"one is in no zone":                {map[string]int64{"a": 1, "b": 1}, "", "a a b b - -", "", none, false},
		"one that is not ready is none":    {map[string]int64{"a": 1, "b": 1}, "", "a b A B B", "aa1 bb1", hinted, false},
		"those that are not ready stay":    {map[string]int64{"a": 1, "b": 1}, "", "A A a a a a b b", "aa3 ab1 bb2", hinted, false},
		"hints stay":                       {map[string]int64{"a": 1, "b": 1}, "a:a b:b", "a b", "aa2 bb2", hinted, true},
		"also where as many are as may be": {map[string]int64{"a": 1, "b": 1}, hintedIn("a a a a ", "a"), "b b b b", "aa4 bb4", hinted, true},
		"hints of one that is too large":   {map[string]int64{"a": 1, "b": 1}, hintedIn("a a a a a ", "a") + "b:b", "b b", "aa4 ab1 bb3", hinted, false},
		"hints for a zone that is gone":    {map[string]int64{"a": 1, "b": 1}, "a:x b:b", "a b", "aa2 bb2", hinted, false},
		"one without a hint":               {map[string]int64{"a": 1, "b": 1}, "a b:b", "a b", "aa2 bb2", hinted, false},
		"one that is not ready needs none": {map[string]int64{"a": 1, "b": 1}, "a:a b:b A", "a b", "aa2 bb2", hinted, true},
		"hints where there are none now":   {nil, "a:a b:b", "", "", "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes", false},
	} {
		v := View{Service: svc("web"), Capacity: c.cpus}
		same, moves := endpointsIn(c.same), endpointsIn(c.moves)
		all := changes{same: []*discoveryv1.EndpointSlice{same}, create: []*discoveryv1.EndpointSlice{moves}}
		because := v.spread(&all)
		settled := c.same != "" && len(all.same) == 1
		if got := hintsOf(slices.Concat(all.same, all.update, all.create)...); got != c.want || because != c.because || settled != c.settled {
			t.Errorf("%s: %q (%s), and what did not change stays: %v; want %q (%s), %v", what, got, because, settled, c.want, c.because, c.settled)
		}
	}
}

// The capacity of a zone is the CPU of its ready nodes that run users' pods.
//
// Upstream: topologycache, SetNodes.
func TestCapacityOfZones(t *testing.T) {
	edited := func(edit func(*corev1.Node)) *corev1.Node {
		n := node("odd", "east")
		edit(n)
		return n
	}
	for what, c := range map[string]struct {
		also *corev1.Node
		want string
	}{
		"two nodes":                {nil, "map[east:2000 west:2000]"},
		"a third":                  {node("n3", "east"), "map[east:4000 west:2000]"},
		"one that is not ready":    {edited(func(n *corev1.Node) { n.Status.Conditions[0].Status = "False" }), "map[east:2000 west:2000]"},
		"one that says nothing":    {edited(func(n *corev1.Node) { n.Status.Conditions = nil }), "map[east:2000 west:2000]"},
		"one of the control plane": {edited(func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }), "map[east:2000 west:2000]"},
		"an older one of it":       {edited(func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/master"] = "" }), "map[east:2000 west:2000]"},
		"one of no zone":           {node("n3", ""), "map[]"},
		"one of no CPU":            {edited(func(n *corev1.Node) { n.Status.Allocatable = nil }), "map[]"},
		"one of the least CPU":     {edited(func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1m") }), "map[east:2001 west:2000]"},
	} {
		nodes := []*corev1.Node{node("n1", "east"), node("n2", "west")}
		if c.also != nil {
			nodes = append(nodes, c.also)
		}
		if got := fmt.Sprint(capacity(nodes)); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
	if got := capacity([]*corev1.Node{node("n1", "east"), node("n2", "east")}); got != nil {
		t.Errorf("the capacity of one zone is %v, want none", got)
	}
}

// Near means the same zone and, if the service asks for that, the same node.
func TestHintsToWhatIsNear(t *testing.T) {
	for what, c := range map[string]struct {
		distribution string
		zone, node   string
		ready        bool
		want         string
	}{
		"a zone":                  {"PreferClose", "east", "n1", true, "[{east}] []"},
		"a zone, by another name": {"PreferSameZone", "east", "n1", true, "[{east}] []"},
		"a node":                  {"PreferSameNode", "east", "n1", true, "[{east}] [{n1}]"},
		"a node of no zone":       {"PreferSameNode", "", "n1", true, "[] [{n1}]"},
		"no zone":                 {"PreferClose", "", "n1", true, "none"},
		"not ready":               {"PreferClose", "east", "n1", false, "none"},
		"nothing is near":         {"PreferFar", "east", "n1", true, "none"},
	} {
		v := View{Service: svc("web"), Max: 100, Zones: map[string]string{c.node: c.zone}}
		v.Service.Spec.TrafficDistribution = &c.distribution
		p := podAt("a", "10.1.0.1")
		if c.ready {
			p = readyAt("a", "10.1.0.1", c.node)
		}
		v.Pods = []*corev1.Pod{p}
		v = applied(v, decide(v, now), now)
		got := "none"
		if h := v.Slices[0].Endpoints[0].Hints; h != nil {
			got = fmt.Sprint(h.ForZones, " ", h.ForNodes)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
		if d := decide(v, now); len(d.Commands) > 0 {
			t.Errorf("%s: the decision changes what it has just written: %s", what, d.Because)
		}
		v.Zones[c.node] = "west"
		if d := decide(v, now); (len(d.Commands) > 0) != (c.want != "none" || c.zone == "" || !c.ready || c.distribution == "PreferFar") {
			t.Errorf("%s: its zone is another one, and it does nothing", what)
		}
	}
}

// An Event names the skipped pods, up to a maximum length.
func TestPodsThatAreLeftOut(t *testing.T) {
	for n, want := range map[int][2]int{0: {0, 0}, 1: {1, 0}, 2: {2, 0}, 15: {15, 0}, 16: {15, 1}, 40: {15, 1}} {
		v := View{Service: svc("web"), Zones: map[string]string{}}
		for i := range n {
			v.Pods = append(v.Pods, readyAt(fmt.Sprintf("p%02d", i), "10.1.0.1", "n1"))
		}
		got := v.skipped()
		pods, others := strings.Count(got, "skipping Pod"), strings.Count(got, "and others")
		if pods != want[0] || others != want[1] || (n > 1) != strings.HasPrefix(got, "[") {
			t.Errorf("of %d pods the message names %d, and %d times others: %s", n, pods, others, got)
		}
	}
	long := View{Service: svc(strings.Repeat("s", 900)), Zones: map[string]string{}, Pods: []*corev1.Pod{readyAt("p", "10.1.0.1", "n1")}}
	if got := long.skipped(); !strings.Contains(got, "skipping Pod p") {
		t.Errorf("the message about a pod with a long reason is %q", got)
	}
}

// A new label of a service alone changes its slices.
func TestLabelsFollowTheService(t *testing.T) {
	v := grown(100, pods("a", "b"), pods("a", "b"))
	v.Service.Labels["tier"] = "front"
	d := decide(v, now)
	if v = applied(v, d, now); len(d.Commands) != 1 || v.Slices[0].Labels["tier"] != "front" || len(v.Slices[0].Endpoints) != 2 {
		t.Errorf("%d things are done, and the slice has %v and %d endpoints", len(d.Commands), v.Slices[0].Labels, len(v.Slices[0].Endpoints))
	}
}

// The gauge of desired slices does not depend on the present ones.
func TestSlicesThatWouldDo(t *testing.T) {
	all := pods("a", "b", "c", "d", "e")
	for n, want := range map[int]float64{0: 1, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3} {
		v := grown(2, all[:n], all[:n])
		for _, f := range decide(v, now).Figures {
			if f.Metric == desiredSlices && f.Value != want {
				t.Errorf("with two endpoints in a slice %v slices would do for %d endpoints, want %v", f.Value, n, want)
			}
		}
	}
}

// The default of a hundred endpoints in a slice is upstream's.
func TestDefaults(t *testing.T) {
	if got := string(New(Config{}).Settings); got != `{"endpointsPerSlice":100}` {
		t.Errorf("the settings are %s", got)
	}
}

// The addresses of a pod are sorted, and those of another family are left out.
func TestAddresses(t *testing.T) {
	p := podAt("a", "10.1.0.9")
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.0.9"}, {IP: "2001:db8::1"}, {IP: "10.1.0.2"}, {IP: "none"}}
	for family, want := range map[discoveryv1.AddressType]string{"IPv4": "[10.1.0.2 10.1.0.9]", "IPv6": "[2001:db8::1]"} {
		if got := fmt.Sprint(addresses(p, family)); got != want {
			t.Errorf("the addresses of %s are %s, want %s", family, got, want)
		}
	}
}
