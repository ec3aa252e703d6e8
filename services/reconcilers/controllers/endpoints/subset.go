package endpoints

import (
	"bytes"
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
)

// subsets are one for each pod and port.
func (v View) subsets() []corev1.EndpointSubset {
	var all []corev1.EndpointSubset
	for _, p := range v.Pods {
		address, ok := v.address(p)
		if !ok {
			continue
		}
		if len(v.Service.Spec.Ports) == 0 && v.Service.Spec.ClusterIP == corev1.ClusterIPNone {
			all = append(all, v.subset(p, address))
		}
		for i := range v.Service.Spec.Ports {
			port := &v.Service.Spec.Ports[i]
			if number, ok := service.Port(p, port); ok {
				all = append(all, v.subset(p, address, corev1.EndpointPort{
					Name: port.Name, Port: number, Protocol: port.Protocol, AppProtocol: port.AppProtocol,
				}))
			}
		}
	}
	return all
}

func (v View) subset(p *corev1.Pod, address corev1.EndpointAddress, ports ...corev1.EndpointPort) corev1.EndpointSubset {
	if v.ready(p) {
		return corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{address}, Ports: ports}
	}
	return corev1.EndpointSubset{NotReadyAddresses: []corev1.EndpointAddress{address}, Ports: ports}
}

func (v View) ready(p *corev1.Pod) bool {
	return v.Service.Spec.PublishNotReadyAddresses || pod.Ready(p)
}

// address is where a pod can be reached; ok is false when it cannot, or is on its
// way out and the service does not want to publish such ones.
func (v View) address(p *corev1.Pod) (address corev1.EndpointAddress, ok bool) {
	if !service.Reachable(p) || p.DeletionTimestamp != nil && !v.Service.Spec.PublishNotReadyAddresses {
		return address, false
	}
	six := v.six(p)
	for _, ip := range p.Status.PodIPs {
		found, parsed := service.Address(ip.IP)
		if !parsed || found.Is6() != six {
			continue
		}
		address = corev1.EndpointAddress{
			IP: found.String(), NodeName: ptr.To(p.Spec.NodeName),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		}
		if hostname, named := service.Hostname(v.Service, p); named {
			address.Hostname = hostname
		}
		return address, true
	}
	return address, false
}

// six tells whether the pod's address should be of IPv6: the service's first family
// counts, then its own address, then the pod's.
func (v View) six(p *corev1.Pod) bool {
	switch {
	case len(v.Service.Spec.IPFamilies) > 0:
		return v.Service.Spec.IPFamilies[0] == corev1.IPv6Protocol
	case !service.Headless(v.Service):
		return strings.Contains(v.Service.Spec.ClusterIP, ":")
	default:
		return strings.Contains(p.Status.PodIP, ":")
	}
}

// spot tells addresses apart: pods may share that of their node.
type spot struct {
	ip  string
	uid types.UID
}

func spotOf(a *corev1.EndpointAddress) spot {
	if a.TargetRef == nil {
		return spot{ip: a.IP}
	}
	return spot{a.IP, a.TargetRef.UID}
}

// bundle is the addresses behind one port, and whether each is ready.
type bundle struct {
	port  corev1.EndpointPort
	none  bool // no port at all
	ready map[spot]bool
}

// repacked puts addresses with the same ports together, in upstream's order. What
// is not ready anywhere on a port is not ready there.
//
// Upstream: pkg/api/v1/endpoints, RepackSubsets.
func repacked(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	addresses := map[spot]corev1.EndpointAddress{}
	var bundles []*bundle
	for i := range subsets {
		ports := subsets[i].Ports
		if len(ports) == 0 {
			bundles = gathered(bundles, &bundle{none: true}, &subsets[i], addresses)
		}
		for _, port := range ports {
			bundles = gathered(bundles, &bundle{port: port}, &subsets[i], addresses)
		}
	}
	byAddresses := map[string]*corev1.EndpointSubset{}
	var packed []corev1.EndpointSubset
	var order []string
	for _, b := range bundles {
		key, subset := b.subset(addresses)
		if byAddresses[key] == nil {
			byAddresses[key] = subset
			order = append(order, key)
		}
		if !b.none {
			byAddresses[key].Ports = append(byAddresses[key].Ports, b.port)
		}
	}
	for _, key := range order {
		subset := byAddresses[key]
		slices.SortStableFunc(subset.Ports, byDigest)
		packed = append(packed, *subset)
	}
	slices.SortStableFunc(packed, byDigest)
	return packed
}

// gathered adds the addresses of a subset to the bundle of a port.
func gathered(bundles []*bundle, b *bundle, subset *corev1.EndpointSubset, addresses map[spot]corev1.EndpointAddress) []*bundle {
	at := slices.IndexFunc(bundles, func(o *bundle) bool { return o.none == b.none && samePort(o.port, b.port) })
	if at >= 0 {
		b = bundles[at]
	} else {
		b.ready = map[spot]bool{}
		bundles = append(bundles, b)
	}
	add := func(a corev1.EndpointAddress, ready bool) {
		s := spotOf(&a)
		if _, known := addresses[s]; !known {
			addresses[s] = a
		}
		if was, known := b.ready[s]; !known || was {
			b.ready[s] = ready
		}
	}
	for _, a := range subset.Addresses {
		add(a, true)
	}
	for _, a := range subset.NotReadyAddresses {
		add(a, false)
	}
	return bundles
}

func samePort(a, b corev1.EndpointPort) bool {
	return a.Name == b.Name && a.Port == b.Port && a.Protocol == b.Protocol && ptr.Equal(a.AppProtocol, b.AppProtocol)
}

// subset is the bundle without its port, and a key for it.
func (b *bundle) subset(addresses map[spot]corev1.EndpointAddress) (string, *corev1.EndpointSubset) {
	var subset corev1.EndpointSubset
	var key strings.Builder
	spots := make([]spot, 0, len(b.ready))
	for s := range b.ready {
		spots = append(spots, s)
	}
	slices.SortFunc(spots, func(a, b spot) int { return cmp.Or(cmp.Compare(a.ip, b.ip), cmp.Compare(a.uid, b.uid)) })
	for _, s := range spots {
		mark := " - "
		if b.ready[s] {
			subset.Addresses = append(subset.Addresses, addresses[s])
			mark = " + "
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, addresses[s])
		}
		key.WriteString(mark + s.ip + " " + string(s.uid))
	}
	return key.String(), &subset
}

// byDigest is an order that means nothing, but is upstream's: whoever takes over
// has nothing to write.
func byDigest[T any](a, b T) int { return bytes.Compare(digest(a), digest(b)) }

func digest(value any) []byte {
	hash := fnv.New128a()
	_, _ = hash.Write([]byte(dump.ForHash(value))) // a hash never fails
	return hash.Sum(nil)
}

func count(subsets []corev1.EndpointSubset) int {
	total := 0
	for i := range subsets {
		total += len(subsets[i].Addresses) + len(subsets[i].NotReadyAddresses)
	}
	return total
}

// truncated are as many addresses as an object may hold, those that are ready
// before those that are not, and of each subset its part, rounded up as long as
// there is room.
//
// Upstream: pkg/controller/endpoint, truncateEndpoints.
func truncated(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	ready := 0
	for i := range subsets {
		ready += len(subsets[i].Addresses)
	}
	out := slices.Clone(subsets)
	total, room := count(subsets)-ready, capacity-ready
	if ready > capacity {
		total, room = ready, capacity
	}
	left := room
	part := func(addresses []corev1.EndpointAddress) []corev1.EndpointAddress {
		share := int(math.Ceil(float64(len(addresses)) / float64(total) * float64(room)))
		kept := addresses[:min(share, left, len(addresses))]
		left -= len(kept)
		return kept
	}
	for i := range out {
		if ready > capacity {
			out[i].Addresses, out[i].NotReadyAddresses = part(out[i].Addresses), nil
		} else {
			out[i].NotReadyAddresses = part(out[i].NotReadyAddresses)
		}
	}
	return out
}
