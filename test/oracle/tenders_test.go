package oracle_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle"
)

var (
	ownerKey = events.Key{Namespace: namespace, Name: owner}
	roleKey  = events.Key{Name: owner}
)

func TestClaimsAreProtectedAsUpstreams(t *testing.T) {
	agree(t, oracle.ClaimProtection, ownerKey, claimWorld)
}
func TestVolumesAreProtectedAsUpstreams(t *testing.T) {
	agree(t, oracle.VolumeProtection, roleKey, volumeWorld)
}
func TestRolesAreAggregatedAsUpstreams(t *testing.T) {
	agree(t, oracle.RoleAggregation, roleKey, roleWorld)
}
func TestPodsAreEndedAsUpstreams(t *testing.T) { agree(t, oracle.PodGC, ownerKey, lostPodWorld) }
func TestTooManyEndedPodsGoAsUpstreams(t *testing.T) {
	agree(t, oracle.EndedPods, events.Key{Name: "finished"}, endedPodsWorld)
}
func TestEndpointsAreAsUpstreams(t *testing.T) { agree(t, oracle.Endpoints, ownerKey, endpointsWorld) }

func TestEndpointSlicesAreAsUpstreams(t *testing.T) {
	agree(t, oracle.EndpointSlice, ownerKey, slicesWorld)
}

// guarded gives an object some finalizers, and may mark one with finalizers as deleted.
func guarded(t *rapid.T, obj metav1.Object, guard string) {
	obj.SetFinalizers(rapid.SampledFrom([][]string{nil, {guard}, {"x", guard}, {"x"}}).Draw(t, "finalizers"))
	if len(obj.GetFinalizers()) > 0 && rapid.Bool().Draw(t, "deleted") {
		at := metav1.NewTime(oracle.Now.Add(-60e9).Truncate(1e9))
		obj.SetDeletionTimestamp(&at)
	}
}

// claimWorld is a claim, and pods that use it or another one.
func claimWorld(t *rapid.T) []runtime.Object {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: owner, Namespace: namespace, UID: "claim", ResourceVersion: "10"}}
	guarded(t, claim, "kubernetes.io/pvc-protection")
	world := []runtime.Object{claim}
	for i := range rapid.IntRange(0, 3).Draw(t, "pods") {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: namespace, UID: types.UID(fmt.Sprint("pod", i))}}
		p.Namespace = rapid.SampledFrom([]string{namespace, namespace, namespace, "other"}).Draw(t, "namespace")
		p.Spec.NodeName = rapid.SampledFrom([]string{"", "n1", "n1"}).Draw(t, "node")
		p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Succeeded", "Failed"}).Draw(t, "phase")
		v := corev1.Volume{Name: "v"}
		switch rapid.IntRange(0, 3).Draw(t, "volume") {
		case 0:
			v.EmptyDir = &corev1.EmptyDirVolumeSource{}
		case 1:
			v.Ephemeral = &corev1.EphemeralVolumeSource{}
			p.Name = "web-of" // otherwise the claim would be another one
		default:
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: rapid.SampledFrom([]string{owner, owner, "another"}).Draw(t, "claim")}
		}
		if p.Name = fmt.Sprint(p.Name, i); chance(t, 4, "shut down") {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = ptr(ago(t, 60, "when")), ptr(int64(0)), []string{"x"}
		}
		p.Spec.Volumes = []corev1.Volume{v}
		world = append(world, p)
	}
	return world
}

func volumeWorld(t *rapid.T) []runtime.Object {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: owner, UID: "pv", ResourceVersion: "10"}}
	guarded(t, pv, "kubernetes.io/pv-protection")
	pv.Status.Phase = rapid.SampledFrom([]corev1.PersistentVolumePhase{"", "Pending", "Available", "Bound", "Released", "Failed"}).Draw(t, "phase")
	return []runtime.Object{pv}
}

// roleWorld is an aggregated role, and parts of it and of others.
func roleWorld(t *rapid.T) []runtime.Object {
	rules := func() (all []rbacv1.PolicyRule) {
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 3).Draw(t, "rules") {
			all = append(all, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{fmt.Sprint("r", n)}})
		}
		return all
	}
	whole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: owner, UID: "role", ResourceVersion: "10"}, Rules: rules()}
	if !chance(t, 8, "no rule") {
		whole.AggregationRule = &rbacv1.AggregationRule{}
		for range rapid.IntRange(0, 2).Draw(t, "selectors") {
			s := metav1.LabelSelector{MatchLabels: map[string]string{"to": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "selects")}}
			if chance(t, 12, "malformed") {
				s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "to", Operator: "Nonsense"}}
			}
			whole.AggregationRule.ClusterRoleSelectors = append(whole.AggregationRule.ClusterRoleSelectors, s)
		}
	}
	if chance(t, 4, "part of itself") {
		whole.Labels = map[string]string{"to": "a"}
	}
	world := []runtime.Object{whole}
	for i := range rapid.IntRange(0, 4).Draw(t, "parts") {
		world = append(world, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("part", i), Labels: map[string]string{"to": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "to")}},
			Rules:      rules(),
		})
	}
	return world
}

// lostPodWorld is a pod, and its node or another one.
func lostPodWorld(t *rapid.T) []runtime.Object {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: owner, Namespace: namespace, UID: "pod", ResourceVersion: "10", Generation: 2}}
	p.Spec.NodeName = rapid.SampledFrom([]string{"", "n1", "n1", "gone"}).Draw(t, "node")
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Succeeded", "Failed"}).Draw(t, "phase")
	if rapid.Bool().Draw(t, "deleted") {
		p.DeletionTimestamp, p.Finalizers = ptr(ago(t, 60, "when")), []string{"x"}
		p.DeletionGracePeriodSeconds = ptr(rapid.SampledFrom([]int64{0, 30}).Draw(t, "grace"))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if rapid.Bool().Draw(t, "out of service") {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, "ready")}}
	return []runtime.Object{p, node}
}

// endedPodsWorld has pods with a node, most of which have ended.
func endedPodsWorld(t *rapid.T) []runtime.Object {
	var world []runtime.Object
	for i := range rapid.IntRange(1, 7).Draw(t, "pods") {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("p", rapid.IntRange(0, 9).Draw(t, "name"), "-", i), Namespace: rapid.SampledFrom([]string{namespace, "other"}).Draw(t, "namespace"),
			UID: types.UID(fmt.Sprint("pod", i)), ResourceVersion: "10", CreationTimestamp: ago(t, 14, "created"),
		}}
		p.Spec.NodeName = "n1"
		p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Unknown", "Succeeded", "Succeeded", "Failed", "Failed"}).Draw(t, "phase")
		if p.Status.Phase == corev1.PodFailed && rapid.Bool().Draw(t, "evicted") {
			p.Status.Reason = "Evicted"
		}
		world = append(world, p)
	}
	return append(world, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node"}})
}

// servedBy is a service with ports by number and by name.
func servedBy(t *rapid.T) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: owner, Namespace: namespace, UID: "service", ResourceVersion: "10", CreationTimestamp: ago(t, 4000, "created")},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Selector: map[string]string{"app": owner},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	if rapid.Bool().Draw(t, "named port") {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "metrics", Port: 90, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("metrics")})
	}
	if rapid.Bool().Draw(t, "labels") {
		s.Labels = map[string]string{"team": "a"}
	}
	s.Spec.PublishNotReadyAddresses = chance(t, 4, "publish")
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
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: namespace, UID: types.UID(fmt.Sprint("pod", i)), Labels: map[string]string{"app": owner}},
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
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(t, 100, "since")}}
		}
		if chance(t, 3, "has metrics") {
			p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9, Protocol: corev1.ProtocolTCP}}}}
		}
		if chance(t, 5, "no address") {
			p.Status.PodIP, p.Status.PodIPs = "", nil
		}
		if chance(t, 5, "leaves") {
			p.DeletionTimestamp, p.Finalizers = ptr(ago(t, 60, "when")), []string{"x"}
		}
		if chance(t, 6, "stranger") {
			p.Labels["app"] = "other"
		}
		if chance(t, 6, "named") {
			p.Spec.Hostname, p.Spec.Subdomain = "h", rapid.SampledFrom([]string{owner, "other"}).Draw(t, "subdomain")
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
	if chance(t, 3, "not published") {
		return world
	}
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Name: owner, Namespace: namespace, UID: "endpoints", ResourceVersion: "20", Labels: map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"},
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
		if p.Status.PodIP == "" || chance(t, 3, "not shown") {
			continue
		}
		a := corev1.EndpointAddress{IP: p.Status.PodIP, NodeName: ptr(p.Spec.NodeName), TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: namespace, Name: p.Name, UID: p.UID, ResourceVersion: rapid.SampledFrom([]string{"", "7"}).Draw(t, "version"),
		}}
		if len(p.Status.Conditions) > 0 != chance(t, 5, "shown otherwise") {
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
	oracle.Uses("node-not-there")
	s, pods := servedBy(t), servers(t)
	world := []runtime.Object{s}
	for _, name := range []string{"n1", "n2"} {
		world = append(world, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z-" + name}}})
	}
	if chance(t, 3, "near") {
		s.Spec.TrafficDistribution = ptr(rapid.SampledFrom([]string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode}).Draw(t, "how near"))
	}
	for _, p := range pods {
		world = append(world, p)
	}
	noted := rapid.Bool().Draw(t, "noted")
	for i, n := 0, rapid.IntRange(0, 3).Draw(t, "slices"); i < n; i++ {
		slice := anySlice(t, s, pods, i)
		if n == 1 && chance(t, 8, "the last of the service before") { // which had no pods
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
			Name: fmt.Sprintf("%s-%d", owner, i), Namespace: namespace, UID: types.UID(fmt.Sprint("slice", i)), ResourceVersion: "20", GenerateName: owner + "-",
			Labels:          map[string]string{discoveryv1.LabelServiceName: owner, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: owner, UID: s.UID, Controller: ptr(true), BlockOwnerDeletion: ptr(true)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{},
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		slice.Labels[corev1.IsHeadlessService] = ""
	}
	if chance(t, 6, "other ports") {
		slice.Ports = []discoveryv1.EndpointPort{{Name: ptr("old"), Port: ptr(int32(1)), Protocol: ptr(corev1.ProtocolTCP)}}
	} else {
		for _, port := range s.Spec.Ports[:min(len(s.Spec.Ports), 1)] {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr(port.Name), Port: ptr(port.TargetPort.IntVal), Protocol: ptr(port.Protocol)})
		}
	}
	for at, p := range pods {
		if at%3 != i || p.Status.PodIP == "" || chance(t, 3, "not in it") {
			continue
		}
		ready := len(p.Status.Conditions) > 0 != chance(t, 5, "shown otherwise")
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.Status.PodIP}, NodeName: ptr(p.Spec.NodeName), Zone: ptr("z-" + p.Spec.NodeName),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(ready), Serving: ptr(ready), Terminating: ptr(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: p.Name, UID: p.UID},
		})
	}
	if chance(t, 8, "of the service before") {
		slice.OwnerReferences[0].UID = "before"
	}
	return slice
}
