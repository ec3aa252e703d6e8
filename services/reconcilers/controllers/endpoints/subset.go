package endpoints

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
)

// subsets returns one subset for each pod and port.
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

// address returns the address of a pod; ok is false if it has none, or is terminating and
// the service does not publish unready addresses.
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

// six reports whether the pod's address must be IPv6: by the service's first family, else
// by its cluster IP, else by the pod's own address.
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

func count(subsets []corev1.EndpointSubset) int {
	total := 0
	for i := range subsets {
		total += len(subsets[i].Addresses) + len(subsets[i].NotReadyAddresses)
	}
	return total
}

// truncated returns at most capacity addresses, ready ones before unready ones, and a
// proportional part of each subset, rounded up as long as there is room.
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
