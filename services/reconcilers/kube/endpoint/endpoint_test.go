package endpoint_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func at(ip string, ready bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
}

func addresses(all []discoveryv1.Endpoint) (ips []string) {
	for _, e := range all {
		ips = append(ips, e.Addresses[0])
	}
	return ips
}

// An endpoint in a slice stays there, with its present fields; the others are handed out in
// order.
func TestSet(t *testing.T) {
	s := endpoint.NewSet([]discoveryv1.Endpoint{at("a", true), at("b", false), at("c", true), at("d", true), at("b", true)})
	kept, touched := s.Keep([]discoveryv1.Endpoint{at("c", true), at("gone", true)})
	if got := addresses(kept); touched || !slices.Equal(got, []string{"c"}) || s.Len() != 3 {
		t.Errorf("kept %v, touched %v, %d left", got, touched, s.Len())
	}
	if kept, touched := s.Keep([]discoveryv1.Endpoint{at("b", false)}); !touched || !*kept[0].Conditions.Ready {
		t.Errorf("kept %+v, touched %v", kept, touched)
	}
	if got := addresses(s.Take(1)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("took %v", got)
	}
	if got := addresses(s.Take(5)); !slices.Equal(got, []string{"d"}) || s.Len() != 0 {
		t.Errorf("took %v, %d left", got, s.Len())
	}
}

func TestPortsKeyIsIndifferentToOrder(t *testing.T) {
	one, other := discoveryv1.EndpointPort{Port: ptr.To(int32(1))}, discoveryv1.EndpointPort{Port: ptr.To(int32(2))}
	key := endpoint.PortsKey([]discoveryv1.EndpointPort{one, other})
	if key != endpoint.PortsKey([]discoveryv1.EndpointPort{other, one}) || key == endpoint.PortsKey([]discoveryv1.EndpointPort{one}) {
		t.Errorf("the key of two ports is %q", key)
	}
}

func TestWhoseTurnASliceMakesIt(t *testing.T) {
	slice := func(service, manager string) reconcile.Object {
		return reconcile.Object{Kind: kinds.EndpointSlices.Kind, Object: &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: manager},
		}}}
	}
	key := func(names ...string) (keys []events.Key) {
		for _, name := range names {
			keys = append(keys, events.Key{Namespace: "shop", Name: name})
		}
		return keys
	}
	for _, c := range []struct {
		what     string
		was, now reconcile.Object
		want     []events.Key
	}{
		{"new", reconcile.Object{}, slice("web", "me"), key("web")}, {"gone", slice("web", "me"), reconcile.Object{}, key("web")},
		{"moved", slice("web", "me"), slice("db", "me"), key("db", "web")}, {"the same", slice("web", "me"), slice("web", "me"), key("web")},
		{"given away", slice("web", "me"), slice("web", "you"), key("web")}, {"another's", slice("web", "you"), slice("web", "you"), nil},
		{"of no service", reconcile.Object{}, slice("", "me"), nil},
	} {
		if got := endpoint.KeysOfSlice("me")(nil, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, c.want)
		}
	}
}

// Addresses with the same ports are together, and one that is not ready somewhere on a
// port is not ready there.
func TestRepacked(t *testing.T) {
	a, b := corev1.EndpointAddress{IP: "10.0.0.1"}, corev1.EndpointAddress{IP: "10.0.0.2"}
	http, sql := corev1.EndpointPort{Port: 80}, corev1.EndpointPort{Port: 5432}
	got := endpoint.Repacked([]corev1.EndpointSubset{
		{Addresses: []corev1.EndpointAddress{a, b}, Ports: []corev1.EndpointPort{http}},
		{Addresses: []corev1.EndpointAddress{b}, NotReadyAddresses: []corev1.EndpointAddress{a}, Ports: []corev1.EndpointPort{http, sql}},
		{Ports: []corev1.EndpointPort{http}},
	})
	if len(got) != 1 || len(got[0].Ports) != 2 || len(got[0].Addresses) != 1 || got[0].Addresses[0].IP != b.IP || len(got[0].NotReadyAddresses) != 1 {
		t.Errorf("the repacked subsets are %+v", got)
	}
}

// An endpoint is another when another pod, name or address answers; all else of it changes.
//
// Upstream: k8s.io/endpointslice/util, hashEndpoint and EndpointsEqualBeyondHash.
func TestWhatAnEndpointIs(t *testing.T) {
	whole := func(edits ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{
			Addresses: []string{"10.0.0.1", "10.0.0.2"}, Hostname: ptr.To("a"), NodeName: ptr.To("n1"), Zone: ptr.To("east"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "u", ResourceVersion: "7"},
		}
		for _, edit := range edits {
			edit(&e)
		}
		return e
	}
	for name, c := range map[string]struct {
		edit        func(*discoveryv1.Endpoint)
		same, equal bool
	}{
		"nothing":                      {func(*discoveryv1.Endpoint) {}, true, true},
		"addresses in other order":     {func(e *discoveryv1.Endpoint) { e.Addresses = []string{"10.0.0.2", "10.0.0.1"} }, true, true},
		"an address less":              {func(e *discoveryv1.Endpoint) { e.Addresses = e.Addresses[:1] }, false, true},
		"another name":                 {func(e *discoveryv1.Endpoint) { e.Hostname = ptr.To("b") }, false, true},
		"no name":                      {func(e *discoveryv1.Endpoint) { e.Hostname = nil }, false, true},
		"another pod":                  {func(e *discoveryv1.Endpoint) { e.TargetRef.Name = "web-2" }, false, false},
		"a pod of another space":       {func(e *discoveryv1.Endpoint) { e.TargetRef.Namespace = "bank" }, false, false},
		"no pod":                       {func(e *discoveryv1.Endpoint) { e.TargetRef = nil }, false, false},
		"the pod's namesake":           {func(e *discoveryv1.Endpoint) { e.TargetRef.UID = "v" }, true, false},
		"another version of it":        {func(e *discoveryv1.Endpoint) { e.TargetRef.ResourceVersion = "8" }, true, true},
		"another node":                 {func(e *discoveryv1.Endpoint) { e.NodeName = ptr.To("n2") }, true, false},
		"no node":                      {func(e *discoveryv1.Endpoint) { e.NodeName = nil }, true, false},
		"another zone":                 {func(e *discoveryv1.Endpoint) { e.Zone = ptr.To("west") }, true, false},
		"no zone":                      {func(e *discoveryv1.Endpoint) { e.Zone = nil }, true, false},
		"it is not ready":              {func(e *discoveryv1.Endpoint) { e.Conditions.Ready = ptr.To(false) }, true, false},
		"it is not said whether it is": {func(e *discoveryv1.Endpoint) { e.Conditions.Ready = nil }, true, false},
		"it does not serve":            {func(e *discoveryv1.Endpoint) { e.Conditions.Serving = ptr.To(false) }, true, false},
		"it is on its way out":         {func(e *discoveryv1.Endpoint) { e.Conditions.Terminating = ptr.To(true) }, true, false},
	} {
		a, b := whole(), whole(c.edit)
		if got := endpoint.Identity(a) == endpoint.Identity(b); got != c.same {
			t.Errorf("%s: the endpoints have the same identity: %t, want %t", name, got, c.same)
		}
		if got, turned := endpoint.Equal(a, b), endpoint.Equal(b, a); got != c.equal || turned != c.equal {
			t.Errorf("%s: the endpoints are equal: %t, the other way round %t; want %t", name, got, turned, c.equal)
		}
	}
}

// A slice that is being deleted takes its endpoints with it, and slices of other managers do
// not count.
func TestSlicesOfAService(t *testing.T) {
	slice := func(name, service, manager string, edits ...reconciletest.Edit[*discoveryv1.EndpointSlice]) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: manager},
		}}
		for _, edit := range edits {
			edit(s)
		}
		return s
	}
	leaving := slice("leaving", "web", "me", reconciletest.Deleted[*discoveryv1.EndpointSlice](reconciletest.Now))
	elsewhere := slice("elsewhere", "web", "me")
	elsewhere.Namespace = "bank"
	world := reconciletest.NewWorld().Put(kinds.EndpointSlices.Kind,
		slice("mine", "web", "me"), slice("theirs", "web", "you"), slice("another", "db", "me"), leaving, elsewhere)
	var names []string
	for _, s := range endpoint.Slices(world, events.Key{Namespace: "shop", Name: "web"}, "me") {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"mine"}) {
		t.Errorf("the slices are %v, want mine", names)
	}
}

// Pods that share an address are not one, and ports with one number are not, either.
//
// Upstream: pkg/api/v1/endpoints, RepackSubsets.
func TestRepackedApart(t *testing.T) {
	of := func(uid types.UID) corev1.EndpointAddress {
		return corev1.EndpointAddress{IP: "10.0.0.1", TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: uid}}
	}
	tcp, udp := corev1.EndpointPort{Port: 53, Protocol: corev1.ProtocolTCP}, corev1.EndpointPort{Port: 53, Protocol: corev1.ProtocolUDP}
	named, spoken := tcp, tcp
	named.Name, spoken.AppProtocol = "dns", ptr.To("kubernetes.io/h2c")
	for name, c := range map[string]struct {
		in        []corev1.EndpointSubset
		addresses int
		not       int
		ports     int
	}{
		"two pods of a node":        {[]corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{of("a")}, Ports: []corev1.EndpointPort{tcp}}, {Addresses: []corev1.EndpointAddress{of("b")}, Ports: []corev1.EndpointPort{tcp}}}, 2, 0, 1},
		"one pod twice":             {[]corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{of("a")}, Ports: []corev1.EndpointPort{tcp}}, {Addresses: []corev1.EndpointAddress{of("a")}, Ports: []corev1.EndpointPort{tcp}}}, 1, 0, 1},
		"one is not ready":          {[]corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{of("a")}, Ports: []corev1.EndpointPort{tcp}}, {NotReadyAddresses: []corev1.EndpointAddress{of("b")}, Ports: []corev1.EndpointPort{tcp}}}, 1, 1, 1},
		"not ready, and then ready": {[]corev1.EndpointSubset{{NotReadyAddresses: []corev1.EndpointAddress{of("a")}, Ports: []corev1.EndpointPort{tcp}}, {Addresses: []corev1.EndpointAddress{of("a")}, Ports: []corev1.EndpointPort{tcp}}}, 0, 1, 1},
		"protocols":                 {[]corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{of("a")}, Ports: []corev1.EndpointPort{tcp, udp, tcp}}}, 1, 0, 2},
		"names":                     {[]corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{of("a")}, Ports: []corev1.EndpointPort{tcp, named}}}, 1, 0, 2},
		"what is spoken":            {[]corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{of("a")}, Ports: []corev1.EndpointPort{tcp, spoken}}}, 1, 0, 2},
	} {
		got := endpoint.Repacked(c.in)
		if len(got) != 1 || len(got[0].Addresses) != c.addresses || len(got[0].NotReadyAddresses) != c.not || len(got[0].Ports) != c.ports {
			t.Errorf("%s: the repacked subsets are %+v", name, got)
		}
	}
}

// The last of a set is handed out, too.
func TestASetOfOne(t *testing.T) {
	s := endpoint.NewSet([]discoveryv1.Endpoint{at("a", true)})
	if got := addresses(s.Take(1)); !slices.Equal(got, []string{"a"}) || s.Len() != 0 {
		t.Errorf("took %v, %d left", got, s.Len())
	}
}

// A subset without an address is not published: clients would find a port that leads nowhere.
func TestNothingIsPublishedOfNoAddresses(t *testing.T) {
	ports := []corev1.EndpointPort{{Port: 80}}
	full := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Port: 81}}, Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}}}
	got := endpoint.Repacked([]corev1.EndpointSubset{{Ports: ports}, full})
	if len(got) != 1 || len(got[0].Ports) != 1 || got[0].Ports[0].Port != 81 {
		t.Errorf("published is %+v", got)
	}
}
