package network

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/workloads"
)

// Network is what users do with Services and the pods behind them.
var Network = []cluster.Operation{
	newService, newService, portService, turnService, deleteService, forgeEndpoints, forgeSlice,
	workloads.ScaleController, workloads.ScaleController, workloads.ScaleController, cluster.DeletePod, cluster.FailPod, cluster.ReleasePod,
}

// SomeService is one of the Services; it is created if it does not exist.
func SomeService(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.Services.Kind, "svc", func(name string) any {
		return &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
			Spec: corev1.ServiceSpec{
				ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
				Selector: map[string]string{"app": fmt.Sprint("rc", w.Roll(2))},
				Ports:    []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
			},
		}
	})
}

func newService(w *cluster.Cluster) { SomeService(w) }

// changeService changes a Service that is there.
func changeService(w *cluster.Cluster, what string, change func(*corev1.Service)) {
	if ref, there := SomeService(w); there {
		w.Note("user: %v %s", ref, what)
		w.API.Change(ref, func(obj metav1.Object) { change(obj.(*corev1.Service)) })
	}
}

func portService(w *cluster.Cluster) {
	port := int32(8080 + w.Roll(3))
	changeService(w, fmt.Sprintf("goes to port %d", port), func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(port) })
}

func turnService(w *cluster.Cluster) {
	app := fmt.Sprint("rc", w.Roll(2))
	changeService(w, "is for "+app, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": app} })
}

func deleteService(w *cluster.Cluster) {
	if ref, there := SomeService(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

func forgeEndpoints(w *cluster.Cluster) {
	if all := w.API.List(kinds.Endpoints.Name); len(all) > 0 {
		ref := apiserver.RefOf(kinds.Endpoints.Name, all[w.Roll(len(all))])
		w.Note("foreign: %v lose what they say", ref)
		w.API.Change(ref, func(obj metav1.Object) { obj.(*corev1.Endpoints).Subsets = nil })
	}
}

func forgeSlice(w *cluster.Cluster) {
	if all := w.API.List(kinds.EndpointSlices.Name); len(all) > 0 {
		ref := apiserver.RefOf(kinds.EndpointSlices.Name, all[w.Roll(len(all))])
		if w.Roll(2) == 0 {
			w.Delete(ref, metav1.DeletePropagationBackground)
			return
		}
		w.Note("foreign: %v loses what it says", ref)
		w.API.Change(ref, func(obj metav1.Object) { obj.(*discoveryv1.EndpointSlice).Endpoints = nil })
	}
}

// behind are the addresses of the pods that answer for a Service, each with its port.
func behind(w *cluster.Cluster, s *corev1.Service) []string {
	var all []string
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if pod.Labels["app"] == s.Spec.Selector["app"] && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			all = append(all, fmt.Sprintf("%s:%d", pod.Status.PodIP, s.Spec.Ports[0].TargetPort.IntVal))
		}
	}
	slices.Sort(all)
	return all
}

// Published reports whether Endpoints and EndpointSlices list the pods behind each Service, and
// none is left of a deleted Service.
func Published(w *cluster.Cluster) error {
	if !w.Runs("endpoints-controller") {
		return nil
	}
	listed, sliced := map[string][]string{}, map[string][]string{}
	for _, obj := range w.API.List(kinds.Endpoints.Name) {
		if strings.HasPrefix(obj.GetName(), outside) {
			return nil // there the users publish
		}
		listed[obj.GetName()] = InSubsets(obj.(*corev1.Endpoints))
	}
	for _, obj := range w.API.List(kinds.EndpointSlices.Name) {
		slice := obj.(*discoveryv1.EndpointSlice)
		name := slice.Labels[discoveryv1.LabelServiceName]
		sliced[name] = append(sliced[name], InSlice(slice)...)
	}
	for _, obj := range w.API.List(kinds.Services.Name) {
		s := obj.(*corev1.Service)
		if strings.HasPrefix(s.Name, outside) {
			return nil
		}
		want := strings.Join(behind(w, s), " ")
		for what, all := range map[string]map[string][]string{"endpoints": listed, "slices": sliced} {
			said, there := all[s.Name]
			slices.Sort(said)
			if have := strings.Join(said, " "); !there || have != want {
				return fmt.Errorf("the %s of %s (there: %v) say %q, and %q answer", what, s.Name, there, have, want)
			}
			delete(all, s.Name)
		}
	}
	if left := slices.Sorted(maps.Keys(listed)); len(left) > 0 {
		return fmt.Errorf("the endpoints of %v outlived their services", left)
	}
	if left := slices.Sorted(maps.Keys(sliced)); len(left) > 0 {
		return fmt.Errorf("the slices of %v outlived their services", left)
	}
	return nil
}

// InSubsets are the addresses in the subsets of Endpoints.
func InSubsets(e *corev1.Endpoints) []string {
	var all []string
	for _, subset := range e.Subsets {
		for _, address := range subset.Addresses {
			for _, port := range subset.Ports {
				all = append(all, fmt.Sprintf("%s:%d", address.IP, port.Port))
			}
		}
	}
	return all
}

// InSlice are the addresses in an EndpointSlice.
func InSlice(slice *discoveryv1.EndpointSlice) []string {
	var all []string
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, port := range slice.Ports {
			all = append(all, fmt.Sprintf("%s:%d", e.Addresses[0], *port.Port))
		}
	}
	return all
}
