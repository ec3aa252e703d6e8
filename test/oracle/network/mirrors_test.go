package network_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/network"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

const mirrorManager = "endpointslicemirroring-controller.k8s.io"

func TestMirrorsAreAsUpstreams(t *testing.T) {
	oracletest.Agree(t, network.EndpointSliceMirroring, oracletest.Key, mirrorWorld)
}

// mirrorWorld has Endpoints at some point of their life, with earlier mirrors. No two mirrors have the same
// ports and family: which of them stays is chance.
func mirrorWorld(t *rapid.T) []runtime.Object {
	var world []runtime.Object
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "service"}}
	if oracletest.Chance(t, 8, "selector") {
		service.Spec.Selector = map[string]string{"app": oracletest.Owner}
	}
	if !oracletest.Chance(t, 8, "no service") {
		world = append(world, service)
	}
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "endpoints", ResourceVersion: "10"}}
	for range rapid.IntRange(0, 3).Draw(t, "subsets") {
		e.Subsets = append(e.Subsets, mirrorSubset(t))
	}
	switch rapid.IntRange(0, 12).Draw(t, "odd endpoints") {
	case 0:
		e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
	case 1:
		e.Annotations = map[string]string{"control-plane.alpha.kubernetes.io/leader": "{}"}
	case 2, 3:
		e.Labels, e.Annotations = map[string]string{"team": "a"}, map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: "c"}
	case 4:
		e.DeletionTimestamp, e.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "deleted")), []string{"example.com/hold"}
	}
	if !oracletest.Chance(t, 10, "no endpoints") {
		world = append(world, e)
	}
	known := map[string]bool{}
	for i := range rapid.IntRange(0, 4).Draw(t, "slices") {
		slice, key := mirrorSlice(t, e, i)
		if known[key] {
			exemption.Uses("twins-among-mirrors")
			continue
		}
		known[key], world = true, append(world, slice)
	}
	return world
}

var mirrorAddresses = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1", "fd00::2", "010.0.0.9", "nowhere"}

func mirrorSubset(t *rapid.T) corev1.EndpointSubset {
	s := corev1.EndpointSubset{Ports: mirrorPorts(t)}
	for _, ip := range rapid.SliceOfNDistinct(rapid.SampledFrom(mirrorAddresses), 0, 5, rapid.ID).Draw(t, "addresses") {
		a := corev1.EndpointAddress{IP: ip}
		if oracletest.Chance(t, 4, "named") {
			a.Hostname, a.NodeName = "h", oracletest.Ptr("n1")
		}
		if oracletest.Chance(t, 3, "not ready") {
			s.NotReadyAddresses = append(s.NotReadyAddresses, a)
		} else {
			s.Addresses = append(s.Addresses, a)
		}
	}
	return s
}

func mirrorPorts(t *rapid.T) (ports []corev1.EndpointPort) {
	for _, port := range rapid.SliceOfNDistinct(rapid.SampledFrom([]int32{80, 443}), 0, 2, rapid.ID).Draw(t, "ports") {
		ports = append(ports, corev1.EndpointPort{Name: fmt.Sprint("p", port), Port: port, Protocol: corev1.ProtocolTCP})
	}
	return ports
}

func mirrorSlice(t *rapid.T, e *corev1.Endpoints, i int) (slice *discoveryv1.EndpointSlice, key string) {
	slice = &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", oracletest.Owner, i), Namespace: oracletest.Namespace, UID: types.UID(fmt.Sprint("slice", i)), ResourceVersion: "20",
			Labels:          map[string]string{discoveryv1.LabelServiceName: oracletest.Owner, discoveryv1.LabelManagedBy: mirrorManager},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Endpoints", Name: oracletest.Owner, UID: e.UID, Controller: oracletest.Ptr(true), BlockOwnerDeletion: oracletest.Ptr(true)}},
		},
		AddressType: rapid.SampledFrom([]discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}).Draw(t, "family"),
		Ports:       []discoveryv1.EndpointPort{},
	}
	all, ports := mirrorAddresses[:4], mirrorPorts(t)
	if slice.AddressType == discoveryv1.AddressTypeIPv6 {
		all = mirrorAddresses[4:6]
	}
	for _, p := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol})
		key += p.Name
	}
	for _, ip := range rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, len(all), rapid.ID).Draw(t, "shown") {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: oracletest.Ptr(!oracletest.Chance(t, 4, "shown as not ready"))},
		})
	}
	switch rapid.IntRange(0, 9).Draw(t, "odd slice") {
	case 0:
		slice.OwnerReferences[0].UID = "before"
	case 1:
		slice.OwnerReferences = nil
	case 2:
		slice.Labels["odd"] = "yes"
	case 3, 4:
		slice.Labels["team"], slice.Annotations = "a", map[string]string{"a": "b"}
	}
	if len(ports) == 2 {
		key = "both"
	}
	return slice, string(slice.AddressType) + key
}
