package network_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/network"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestEndpointsAreAsUpstreams(t *testing.T) {
	oracletest.Agree(t, network.Endpoints, oracletest.Key, endpointsWorld)
}

func TestEndpointSlicesAreAsUpstreams(t *testing.T) {
	oracletest.Agree(t, network.EndpointSlice, oracletest.Key, slicesWorld)
}

// servedBy is a service with ports by number and by name.
func servedBy(t *rapid.T) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "service", ResourceVersion: "10", CreationTimestamp: oracletest.Ago(t, 4000, "created")},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Selector: map[string]string{"app": oracletest.Owner},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	if rapid.Bool().Draw(t, "named port") {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "metrics", Port: 90, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("metrics")})
	}
	if rapid.Bool().Draw(t, "labels") {
		s.Labels = map[string]string{"team": "a"}
	}
	s.Spec.PublishNotReadyAddresses = oracletest.Chance(t, 4, "publish")
	switch rapid.IntRange(0, 11).Draw(t, "odd service") {
	case 0:
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "elsewhere"
	case 1:
		s.Spec.Selector = nil
	case 2:
		s.Spec.ClusterIP, s.Spec.Ports = corev1.ClusterIPNone, nil
	case 3:
		s.Spec.ClusterIP = corev1.ClusterIPNone
	case 4:
		s.Spec.IPFamilies, s.Spec.ClusterIP = []corev1.IPFamily{corev1.IPv6Protocol}, "fd00::9"
	case 5:
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	return s
}

// servers are possible pods of a service, each with its own address.
func servers(t *rapid.T) []*corev1.Pod {
	var all []*corev1.Pod
	for i := range rapid.IntRange(0, 9).Draw(t, "pods") {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: oracletest.Namespace, UID: types.UID(fmt.Sprint("pod", i)), Labels: map[string]string{"app": oracletest.Owner}},
			Spec:       corev1.PodSpec{NodeName: rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")},
			Status: corev1.PodStatus{
				Phase: rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Running", "Running", "Succeeded", "Failed"}).Draw(t, "phase"),
				PodIP: fmt.Sprintf("10.1.0.%d", i+1), PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.1.0.%d", i+1)}},
			},
		}
		if rapid.Bool().Draw(t, "two families") {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: fmt.Sprintf("fd00::%d", i+1)})
		}
		if rapid.Bool().Draw(t, "ready") {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: oracletest.Ago(t, 100, "since")}}
		}
		if oracletest.Chance(t, 3, "has metrics") {
			p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9, Protocol: corev1.ProtocolTCP}}}}
		}
		if oracletest.Chance(t, 5, "no address") {
			p.Status.PodIP, p.Status.PodIPs = "", nil
		}
		if oracletest.Chance(t, 5, "leaves") {
			p.DeletionTimestamp, p.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "when")), []string{"x"}
		}
		if oracletest.Chance(t, 6, "stranger") {
			p.Labels["app"] = "other"
		}
		if oracletest.Chance(t, 6, "named") {
			p.Spec.Hostname, p.Spec.Subdomain = "h", rapid.SampledFrom([]string{oracletest.Owner, "other"}).Draw(t, "subdomain")
		}
		all = append(all, p)
	}
	return all
}

// endpointsWorld is a service with pods, and its earlier Endpoints with some of the pods.
func endpointsWorld(t *rapid.T) []runtime.Object {
	s, pods := servedBy(t), servers(t)
	world := []runtime.Object{s}
	for _, p := range pods {
		world = append(world, p)
	}
	if oracletest.Chance(t, 3, "not published") {
		return world
	}
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "endpoints", ResourceVersion: "20", Labels: map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"},
	}}
	if rapid.Bool().Draw(t, "noted") {
		e.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "1999-12-31T00:00:00Z"}
	}
	if rapid.Bool().Draw(t, "same labels") {
		for k, v := range s.Labels {
			e.Labels[k] = v
		}
	}
	var subset corev1.EndpointSubset
	for _, p := range pods {
		if p.Status.PodIP == "" || oracletest.Chance(t, 3, "not shown") {
			continue
		}
		a := corev1.EndpointAddress{IP: p.Status.PodIP, NodeName: oracletest.Ptr(p.Spec.NodeName), TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: oracletest.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: rapid.SampledFrom([]string{"", "7"}).Draw(t, "version"),
		}}
		if len(p.Status.Conditions) > 0 != oracletest.Chance(t, 5, "shown otherwise") {
			subset.Addresses = append(subset.Addresses, a)
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, a)
		}
	}
	for _, port := range s.Spec.Ports[:min(len(s.Spec.Ports), 1)] {
		subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: port.Name, Port: port.TargetPort.IntVal, Protocol: port.Protocol})
	}
	if len(subset.Addresses)+len(subset.NotReadyAddresses) > 0 {
		e.Subsets = []corev1.EndpointSubset{subset}
	}
	return append(world, e)
}

// slicesWorld is a service with pods, nodes, and earlier slices. Every pod's node exists: otherwise upstream
// would warn at each attempt, and ours waits for the node.
func slicesWorld(t *rapid.T) []runtime.Object {
	exemption.Uses("node-not-there")
	s, pods := servedBy(t), servers(t)
	world := []runtime.Object{s}
	for _, name := range []string{"n1", "n2"} {
		world = append(world, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z-" + name}}})
	}
	if oracletest.Chance(t, 3, "near") {
		s.Spec.TrafficDistribution = oracletest.Ptr(rapid.SampledFrom([]string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode}).Draw(t, "how near"))
	}
	for _, p := range pods {
		world = append(world, p)
	}
	noted := rapid.Bool().Draw(t, "noted")
	for i, n := 0, rapid.IntRange(0, 3).Draw(t, "slices"); i < n; i++ {
		slice := anySlice(t, s, pods, i)
		if n == 1 && oracletest.Chance(t, 8, "the last of the service before") { // which had no pods
			slice.OwnerReferences[0].UID, slice.Endpoints, slice.Ports = "before", nil, []discoveryv1.EndpointPort{}
		}
		if noted {
			slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "1999-12-31T00:00:00Z"}
		}
		world = append(world, slice)
	}
	return world
}

// anySlice has some of the pods, but none that another slice has.
func anySlice(t *rapid.T, s *corev1.Service, pods []*corev1.Pod, i int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", oracletest.Owner, i), Namespace: oracletest.Namespace, UID: types.UID(fmt.Sprint("slice", i)), ResourceVersion: "20", GenerateName: oracletest.Owner + "-",
			Labels:          map[string]string{discoveryv1.LabelServiceName: oracletest.Owner, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: oracletest.Owner, UID: s.UID, Controller: oracletest.Ptr(true), BlockOwnerDeletion: oracletest.Ptr(true)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{},
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		slice.Labels[corev1.IsHeadlessService] = ""
	}
	if oracletest.Chance(t, 6, "other ports") {
		slice.Ports = []discoveryv1.EndpointPort{{Name: oracletest.Ptr("old"), Port: oracletest.Ptr(int32(1)), Protocol: oracletest.Ptr(corev1.ProtocolTCP)}}
	} else {
		for _, port := range s.Spec.Ports[:min(len(s.Spec.Ports), 1)] {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: oracletest.Ptr(port.Name), Port: oracletest.Ptr(port.TargetPort.IntVal), Protocol: oracletest.Ptr(port.Protocol)})
		}
	}
	for at, p := range pods {
		if at%3 != i || p.Status.PodIP == "" || oracletest.Chance(t, 3, "not in it") {
			continue
		}
		ready := len(p.Status.Conditions) > 0 != oracletest.Chance(t, 5, "shown otherwise")
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.Status.PodIP}, NodeName: oracletest.Ptr(p.Spec.NodeName), Zone: oracletest.Ptr("z-" + p.Spec.NodeName),
			Conditions: discoveryv1.EndpointConditions{Ready: oracletest.Ptr(ready), Serving: oracletest.Ptr(ready), Terminating: oracletest.Ptr(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: oracletest.Namespace, Name: p.Name, UID: p.UID},
		})
	}
	if oracletest.Chance(t, 8, "of the service before") {
		slice.OwnerReferences[0].UID = "before"
	}
	return slice
}
