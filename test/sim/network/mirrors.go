package network

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Mirrors is what users do with Services whose Endpoints they maintain themselves.
var Mirrors = []cluster.Operation{
	newOutside, newOutside, selectOutside, deleteOutside, newAddresses, newAddresses, newAddresses, changeAddresses, changeAddresses,
	hideAddresses, deleteAddresses, forgeSlice,
}

// outside is the prefix of the names of such Services and their Endpoints.
const outside = "outside"

func someOutside(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.Services.Kind, outside, func(name string) any {
		return &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP}}},
		}
	})
}

func newOutside(w *cluster.Cluster) { someOutside(w) }

// selectOutside gives a Service a selector, or takes it away.
func selectOutside(w *cluster.Cluster) {
	if ref, there := someOutside(w); there {
		w.Note("user: %v has a selector, or has none any more", ref)
		w.API.Change(ref, func(obj metav1.Object) {
			s := obj.(*corev1.Service)
			if s.Spec.Selector == nil {
				s.Spec.Selector = map[string]string{"app": "inside"}
			} else {
				s.Spec.Selector = nil
			}
		})
	}
}

func deleteOutside(w *cluster.Cluster) {
	if ref, there := someOutside(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

func someAddresses(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.Endpoints.Kind, outside, func(name string) any {
		return &corev1.Endpoints{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Endpoints"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
			Subsets: anySubsets(w),
		}
	})
}

// anySubsets are addresses of both families on one port or two.
func anySubsets(w *cluster.Cluster) (subsets []corev1.EndpointSubset) {
	for i := range 1 + w.Roll(2) {
		s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "sql", Port: int32(5432 + i), Protocol: corev1.ProtocolTCP}}}
		for j := range 4 {
			a := corev1.EndpointAddress{IP: []string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"}[j]}
			switch w.Roll(3) {
			case 0:
				s.Addresses = append(s.Addresses, a)
			case 1:
				s.NotReadyAddresses = append(s.NotReadyAddresses, a)
			}
		}
		subsets = append(subsets, s)
	}
	return subsets
}

func newAddresses(w *cluster.Cluster) { someAddresses(w) }

func changeAddresses(w *cluster.Cluster) {
	if ref, there := someAddresses(w); there {
		subsets := anySubsets(w)
		w.Note("user: %v has other addresses", ref)
		w.API.Change(ref, func(obj metav1.Object) { obj.(*corev1.Endpoints).Subsets = subsets })
	}
}

// hideAddresses excludes Endpoints from mirroring, or takes that back.
func hideAddresses(w *cluster.Cluster) {
	if ref, there := someAddresses(w); there {
		w.Note("user: %v is to be mirrored, or not any more", ref)
		w.API.Change(ref, func(obj metav1.Object) {
			if obj.GetLabels() == nil {
				obj.SetLabels(map[string]string{discoveryv1.LabelSkipMirror: "true"})
			} else {
				obj.SetLabels(nil)
			}
		})
	}
}

func deleteAddresses(w *cluster.Cluster) {
	if ref, there := someAddresses(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// Mirrored reports whether exactly the Endpoints to be mirrored are, each address once and with
// its port and state.
func Mirrored(w *cluster.Cluster) error {
	var want, have []string
	for _, obj := range w.API.List(kinds.Endpoints.Name) {
		e := obj.(*corev1.Endpoints)
		s, there := w.API.Get(events.Ref{Kind: kinds.Services.Name, Namespace: e.Namespace, Name: e.Name}).(*corev1.Service)
		if !strings.HasPrefix(e.Name, outside) || !there || s.Spec.Selector != nil || e.Labels[discoveryv1.LabelSkipMirror] != "" {
			continue
		}
		for _, subset := range e.Subsets {
			for _, a := range subset.Addresses {
				want = append(want, fmt.Sprint(e.Name, " ", a.IP, " ", subset.Ports[0].Port, " ready: ", true))
			}
			for _, a := range subset.NotReadyAddresses {
				want = append(want, fmt.Sprint(e.Name, " ", a.IP, " ", subset.Ports[0].Port, " ready: ", false))
			}
		}
	}
	for _, obj := range w.API.List(kinds.EndpointSlices.Name) {
		slice := obj.(*discoveryv1.EndpointSlice)
		name := slice.Labels[discoveryv1.LabelServiceName]
		if !strings.HasPrefix(name, outside) {
			continue
		}
		if len(slice.Endpoints) == 0 {
			return fmt.Errorf("slice %s shows nothing", slice.Name)
		}
		for _, e := range slice.Endpoints {
			for _, p := range slice.Ports {
				have = append(have, fmt.Sprint(name, " ", e.Addresses[0], " ", *p.Port, " ready: ", *e.Conditions.Ready))
			}
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		return fmt.Errorf("the mirrors show\n%q, and there is\n%q", have, want)
	}
	return nil
}
