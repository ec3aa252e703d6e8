package endpoint_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
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

// What has a place keeps it, as it is now; the rest is handed out in order.
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
		{"nobody's", reconcile.Object{}, slice("", "me"), nil},
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
		t.Errorf("it is %+v", got)
	}
}
