package endpointslice

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
)

// packed returns the changes that bring the slices of a family to the present endpoints.
// A service without endpoints keeps one empty slice, so that a client can tell it from a
// service that has not been processed. The slice must belong to the service: the garbage
// collector is about to delete one that an earlier service of the same name has left.
//
// Upstream: k8s.io/endpointslice/reconciler.go, reconcileByAddressType.
func (v View) packed(family discoveryv1.AddressType) changes {
	groups, alien := v.groups(family)
	c := changes{family: family, remove: alien}
	had := len(alien)
	for _, g := range groups {
		had += len(g.have)
		if g.wanted {
			v.pack(g, &c)
		} else {
			c.remove = append(c.remove, g.have...)
		}
	}
	if had > len(c.remove) || len(c.create) > 0 {
		return c
	}
	empty := v.fresh(family, []discoveryv1.EndpointPort{})
	if len(c.remove) == 1 && ownedBy(c.remove[0], v.Service) && likeEmpty(c.remove[0], empty) {
		c.same, c.remove = c.remove, nil
		return c
	}
	c.create = append(c.create, empty)
	return c
}

func likeEmpty(slice, empty *discoveryv1.EndpointSlice) bool {
	return len(slice.Endpoints) == 0 && len(slice.Ports) == 0 && maps.Equal(slice.Labels, empty.Labels)
}

// pack puts the endpoints of a group into its slices. Endpoints stay in their slices. The
// rest fills up slices that change anyway, fullest first, then an unchanged slice into
// which all of the rest fits, then new slices.
//
// Upstream: k8s.io/endpointslice/reconciler.go, reconcileByPortMapping.
func (v View) pack(g *group, c *changes) {
	rest := endpoint.NewSet(g.want)
	var changed, same []*discoveryv1.EndpointSlice
	for _, slice := range g.have {
		kept, touched := rest.Keep(slice.Endpoints)
		labels, relabelled := v.labels(slice)
		switch {
		case (touched || len(kept) != len(slice.Endpoints)) && len(kept) == 0:
			c.remove = append(c.remove, slice)
		case touched || len(kept) != len(slice.Endpoints):
			changed = append(changed, with(slice, kept, labels))
		case relabelled:
			changed = append(changed, with(slice, slice.Endpoints, labels))
		default:
			same = append(same, slice)
		}
	}
	slices.SortStableFunc(changed, byFill)
	for _, slice := range changed {
		slice.Endpoints = append(slice.Endpoints, rest.Take(v.Max-len(slice.Endpoints))...)
	}
	for rest.Len() > 0 {
		at := roomiest(same, rest.Len(), v.Max)
		if at < 0 {
			slice := v.fresh(c.family, g.ports)
			slice.Endpoints = rest.Take(v.Max)
			c.create = append(c.create, slice)
			continue
		}
		slice := same[at].DeepCopy()
		slice.Endpoints = append(slice.Endpoints, rest.Take(v.Max-len(slice.Endpoints))...)
		same, changed = slices.Delete(same, at, at+1), append(changed, slice)
	}
	c.update, c.same = append(c.update, changed...), append(c.same, same...)
}

// roomiest returns the slice that is fullest after adding more endpoints; -1 if none has
// room for all of them, or if they fill a slice of their own.
func roomiest(all []*discoveryv1.EndpointSlice, more, most int) int {
	best, room := -1, most
	if more >= most {
		return best
	}
	for at, slice := range all {
		if left := most - more - len(slice.Endpoints); left >= 0 && left < room {
			best, room = at, left
		}
	}
	return best
}

func with(slice *discoveryv1.EndpointSlice, endpoints []discoveryv1.Endpoint, labels map[string]string) *discoveryv1.EndpointSlice {
	next := slice.DeepCopy()
	next.Endpoints, next.Labels = endpoints, labels
	return next.DeepCopy() // the arguments belong to the view
}

// fresh returns a new slice.
func (v View) fresh(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Service.Namespace, GenerateName: names.Prefix(v.Service.Name),
			OwnerReferences: []metav1.OwnerReference{owner.Reference(kinds.Services.Kind, v.Service)},
		},
		AddressType: family, Ports: ports, Endpoints: []discoveryv1.Endpoint{},
	}
	slice.Labels, _ = v.labels(slice)
	return slice
}

// labels returns the labels that a slice should have: the service's, and three of its
// own. others is true if the service's labels differ; the three alone are no reason to
// update a slice.
func (v View) labels(slice *discoveryv1.EndpointSlice) (labels map[string]string, others bool) {
	have, want := foreign(slice.Labels), foreign(v.Service.Labels)
	others = !maps.Equal(have, want)
	if service.Headless(v.Service) {
		want[corev1.IsHeadlessService] = ""
	}
	want[discoveryv1.LabelServiceName], want[discoveryv1.LabelManagedBy] = v.Service.Name, manager
	return want, others
}

// foreign returns the labels without the three that only slices have.
func foreign(labels map[string]string) map[string]string {
	rest := make(map[string]string, len(labels)+3)
	for key, value := range labels {
		if key != discoveryv1.LabelServiceName && key != discoveryv1.LabelManagedBy && key != corev1.IsHeadlessService {
			rest[key] = value
		}
	}
	return rest
}
