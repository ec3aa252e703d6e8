package endpointslicemirroring

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
)

// leftOut counts the addresses that are not mirrored, and the invalid ones among them.
type leftOut struct{ all, invalid int }

// mirrors returns the slices that there should be, in the order of the subsets.
//
// Upstream: pkg/controller/endpointslicemirroring/reconciler.go. What is too much is
// counted over both families of a subset.
func (v View) mirrors() (wanted []*discoveryv1.EndpointSlice, left leftOut) {
	for _, subset := range endpoint.Repacked(v.Endpoints.Subsets) {
		byFamily, added := map[discoveryv1.AddressType][]discoveryv1.Endpoint{}, 0
		take := func(addresses []corev1.EndpointAddress, ready bool) {
			for i := range addresses {
				if added >= v.Max {
					return
				}
				family, e, ok := mirrored(&addresses[i], ready)
				if !ok {
					left.invalid++
					continue
				}
				byFamily[family] = append(byFamily[family], e)
				added++
			}
		}
		take(subset.Addresses, true)
		take(subset.NotReadyAddresses, false)
		left.all += len(subset.Addresses) + len(subset.NotReadyAddresses) - added
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			if all := endpoint.NewSet(byFamily[family]); all.Len() > 0 {
				wanted = append(wanted, v.fresh(family, subset.Ports, all.Take(v.Max)))
			}
		}
	}
	return wanted, left
}

// mirrored returns the endpoint of an address; ok is false if the address is invalid.
func mirrored(a *corev1.EndpointAddress, ready bool) (family discoveryv1.AddressType, e discoveryv1.Endpoint, ok bool) {
	address, ok := service.Address(a.IP)
	if !ok {
		return family, e, false
	}
	family = discoveryv1.AddressTypeIPv4
	if address.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	e = discoveryv1.Endpoint{
		Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef: a.TargetRef, NodeName: a.NodeName,
	}
	if a.Hostname != "" {
		e.Hostname = ptr.To(a.Hostname)
	}
	return family, e, true
}

// fresh returns a new slice.
func (v View) fresh(family discoveryv1.AddressType, ports []corev1.EndpointPort, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Endpoints.Namespace, GenerateName: names.Prefix(v.Endpoints.Name), Labels: v.labels(), Annotations: v.annotations(),
			OwnerReferences: []metav1.OwnerReference{owner.Reference(kinds.Endpoints.Kind, v.Endpoints)},
		},
		AddressType: family, Endpoints: endpoints, Ports: []discoveryv1.EndpointPort{},
	}
	for i := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(ports[i].Name), Port: ptr.To(ports[i].Port), Protocol: ptr.To(ports[i].Protocol), AppProtocol: ports[i].AppProtocol,
		})
	}
	return slice
}

// labels returns the labels of the Endpoints and the two that identify a mirror.
func (v View) labels() map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, v.Endpoints.Labels)
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = v.Endpoints.Name, manager
	return labels
}

// annotations returns the annotations of the Endpoints, without those that describe only that object.
func (v View) annotations() map[string]string {
	annotations := map[string]string{}
	maps.Copy(annotations, v.Endpoints.Annotations)
	delete(annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return annotations
}

// compare returns the changes from the present mirrors to the wanted ones. Of several
// mirrors with the same ports and family the first stays.
func (v View) compare(wanted []*discoveryv1.EndpointSlice) (c changes) {
	byKey := map[string][]*discoveryv1.EndpointSlice{}
	for _, slice := range v.Slices {
		byKey[keyOf(slice)] = append(byKey[keyOf(slice)], slice)
	}
	for _, next := range wanted {
		had := byKey[keyOf(next)]
		if delete(byKey, keyOf(next)); len(had) == 0 {
			c.create, c.added = append(c.create, next), c.added+len(next.Endpoints)
			continue
		}
		c.remove = append(c.remove, had[1:]...)
		if c.weigh(had[0], next) || !v.dressed(had[0]) {
			take(next, had[0])
			c.update = append(c.update, next)
		}
	}
	for _, slice := range v.Slices {
		if left := byKey[keyOf(slice)]; slices.Contains(left, slice) {
			c.remove, c.removed = append(c.remove, slice), c.removed+len(slice.Endpoints)
		}
	}
	return c
}

func keyOf(slice *discoveryv1.EndpointSlice) string {
	return string(slice.AddressType) + " " + endpoint.PortsKey(slice.Ports)
}

// weigh counts the differences between a mirror's present and wanted addresses, and tells
// whether there are any.
func (c *changes) weigh(had, next *discoveryv1.EndpointSlice) bool {
	want := endpoint.NewSet(next.Endpoints)
	now := map[string]discoveryv1.Endpoint{}
	for _, e := range next.Endpoints {
		now[endpoint.Identity(e)] = e
	}
	kept, _ := want.Keep(had.Endpoints)
	updated := 0
	for _, e := range had.Endpoints {
		if is, there := now[endpoint.Identity(e)]; there && !endpoint.Equal(e, is) {
			updated++
		}
	}
	added, removed := want.Len(), len(had.Endpoints)-len(kept)
	c.added, c.updated, c.removed = c.added+added, c.updated+updated, c.removed+removed
	return added+updated+removed > 0
}

// dressed reports whether the rest of a mirror is right: labels, annotations, and no owner
// that is an earlier object. A mirror without an owner stays without one.
func (v View) dressed(slice *discoveryv1.EndpointSlice) bool {
	stale := slices.ContainsFunc(slice.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == kinds.Endpoints.Kind.Kind && o.Name == v.Endpoints.Name && o.UID != v.Endpoints.UID
	})
	return !stale && maps.Equal(slice.Labels, v.labels()) && maps.Equal(slice.Annotations, v.annotations())
}
