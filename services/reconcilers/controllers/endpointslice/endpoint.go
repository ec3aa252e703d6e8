package endpointslice

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
)

// families returns the sorted address families of the service.
//
// Upstream: k8s.io/endpointslice/utils.go, getAddressTypesForService. A service
// without families is of an API server before dual stack, or not defaulted yet.
func (v View) families() []discoveryv1.AddressType {
	var families []discoveryv1.AddressType
	for _, f := range v.Service.Spec.IPFamilies {
		if family := discoveryv1.AddressType(f); !slices.Contains(families, family) &&
			(family == discoveryv1.AddressTypeIPv4 || family == discoveryv1.AddressTypeIPv6) {
			families = append(families, family)
		}
	}
	switch {
	case len(families) > 0:
	case service.Headless(v.Service):
		families = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	case strings.Contains(v.Service.Spec.ClusterIP, ":"):
		families = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}
	default:
		families = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
	}
	slices.Sort(families)
	return families
}

// group has the endpoints of the pods that listen on the same ports, and the slices with these ports.
type group struct {
	ports []discoveryv1.EndpointPort
	want  []discoveryv1.Endpoint
	have  []*discoveryv1.EndpointSlice
	// wanted is false if no pod listens on these ports any more.
	wanted bool
}

// groups returns the groups of a family, and the slices of an earlier service of this name (alien).
func (v View) groups(family discoveryv1.AddressType) (groups []*group, alien []*discoveryv1.EndpointSlice) {
	byPorts := map[string]*group{}
	at := func(ports []discoveryv1.EndpointPort) *group {
		key := endpoint.PortsKey(ports)
		if byPorts[key] == nil {
			byPorts[key] = &group{ports: ports}
			groups = append(groups, byPorts[key])
		}
		return byPorts[key]
	}
	for _, slice := range v.Slices {
		switch {
		case slice.AddressType != family:
		case !ownedBy(slice, v.Service):
			alien = append(alien, slice)
		default:
			g := at(slice.Ports)
			g.have = append(g.have, slice)
		}
	}
	for _, p := range v.Pods {
		if !service.Reachable(p) {
			continue
		}
		g := at(v.ports(p))
		g.wanted = true
		if e, ok := v.endpoint(p, family); ok {
			g.want = append(g.want, e)
		}
	}
	return groups, alien
}

// ports returns the service's ports on a pod.
func (v View) ports(p *corev1.Pod) []discoveryv1.EndpointPort {
	ports := []discoveryv1.EndpointPort{}
	for i := range v.Service.Spec.Ports {
		port := &v.Service.Spec.Ports[i]
		if number, ok := service.Port(p, port); ok {
			ports = append(ports, discoveryv1.EndpointPort{
				Name: ptr.To(port.Name), Port: ptr.To(number), Protocol: ptr.To(port.Protocol), AppProtocol: port.AppProtocol,
			})
		}
	}
	return ports
}

// endpoint returns the endpoint of a pod. ok is false if the pod has no address in this
// family, or its node does not exist and the service does not publish unready addresses.
//
// Upstream: k8s.io/endpointslice/utils.go, podToEndpoint. One on its way out is
// never ready, unless the service wants to publish what is not.
func (v View) endpoint(p *corev1.Pod, family discoveryv1.AddressType) (discoveryv1.Endpoint, bool) {
	addresses := addresses(p, family)
	zone, known := v.Zones[p.Spec.NodeName]
	publish := v.Service.Spec.PublishNotReadyAddresses
	if !service.Reachable(p) || len(addresses) == 0 || !known && !publish {
		return discoveryv1.Endpoint{}, false
	}
	serving, terminating := pod.Ready(p), p.DeletionTimestamp != nil
	e := discoveryv1.Endpoint{
		Addresses: addresses,
		Conditions: discoveryv1.EndpointConditions{
			Ready: ptr.To(publish || serving && !terminating), Serving: &serving, Terminating: &terminating,
		},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}
	if p.Spec.NodeName != "" {
		e.NodeName = ptr.To(p.Spec.NodeName)
	}
	if zone != "" {
		e.Zone = ptr.To(zone)
	}
	if hostname, ok := service.Hostname(v.Service, p); ok {
		e.Hostname = ptr.To(hostname)
	}
	return e, true
}

func addresses(p *corev1.Pod, family discoveryv1.AddressType) []string {
	var all []string
	for _, ip := range p.Status.PodIPs {
		if address, ok := service.Address(ip.IP); ok && address.Is6() == (family == discoveryv1.AddressTypeIPv6) {
			all = append(all, address.String())
		}
	}
	slices.Sort(all)
	return all
}

// ownedBy reports whether a slice belongs to this service, and not to an earlier one of its name.
func ownedBy(slice *discoveryv1.EndpointSlice, svc *corev1.Service) bool {
	for _, o := range slice.OwnerReferences {
		if o.UID == svc.UID && o.Kind == "Service" && o.APIVersion == "v1" {
			return true
		}
	}
	return false
}

// byFill sorts the fullest slice first.
func byFill(a, b *discoveryv1.EndpointSlice) int {
	return cmp.Compare(len(b.Endpoints), len(a.Endpoints))
}
