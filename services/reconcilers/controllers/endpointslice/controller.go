// Package endpointslice publishes the addresses and conditions of the pods of each
// Service in EndpointSlices.
//
// The controller groups the pods of a service by the ports that they listen on, and
// splits each group into slices of a bounded size. An endpoint stays in its slice, new
// endpoints fill up slices that change anyway, and nothing is moved to make slices
// fuller, because each slice that changes is sent to every node. If the service asks for
// it, slices carry hints by which nodes prefer near endpoints.
//
// Upstream: the library k8s.io/endpointslice. It writes while it judges, and distributes
// hints in the order of maps, so its rules are here and its code is not. What it
// remembers of the slices that it wrote is the engine's fence here.
package endpointslice

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Name is the controller's name. manager is its name in the managed-by label of its slices.
const (
	Name    = "endpointslice-controller"
	manager = "endpointslice-controller.k8s.io"
)

// DefaultMax is the default of [Config].Max.
const DefaultMax = 100

// Config configures the controller.
type Config struct {
	// Max is the maximum number of endpoints of a slice, up to 1,000; 0 means [DefaultMax].
	Max int `json:"endpointsPerSlice"`
}

// New returns the controller. A key is a Service.
func New(config Config) reconcile.Controller[View] {
	config.Max = cmp.Or(config.Max, DefaultMax)
	return reconcile.Controller[View]{
		Name:    Name,
		Aliases: []string{"endpointslice"},
		Source:  "endpoint-slice-controller",
		Queue:   "endpoint_slice",
		Owns:    &kinds.Services.Kind,
		Inputs: []reconcile.Input{
			reconcile.Own(kinds.Services.Kind),
			{Kind: kinds.Pods.Kind, Keys: service.KeysOfPod},
			{Kind: kinds.Nodes.Kind, Keys: keysOfNode},
			{Kind: kinds.EndpointSlices.Kind, Keys: endpoint.KeysOfSlice(manager)},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.EndpointSlices.Name, On: reconcile.Beside, Name: reconcile.After, Child: true, Fields: []string{".metadata.labels", ".metadata.annotations", ".metadata.generateName", ".metadata.ownerReferences", ".addressType", ".endpoints", ".ports"}, Values: managed},
			{Verb: events.VerbUpdate, Kind: kinds.EndpointSlices.Name, On: reconcile.Beside, Child: true, Fields: []string{".metadata", ".addressType", ".endpoints", ".ports"}, Values: managed},
			{Verb: events.VerbDelete, Kind: kinds.EndpointSlices.Name, On: reconcile.Beside},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.Services.Kind, On: reconcile.Itself},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  reconcile.Body(config),
		Observe:   func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, config.Max) },
		Decide:    decide,
	}
}

// View is the input of one turn.
type View struct {
	Service *corev1.Service `json:"service"`
	// Max is the maximum number of endpoints of a slice.
	Max int `json:"max"`
	// Pods are the pods that the service selects.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Slices are this controller's slices for a service of this name, without terminating ones.
	Slices []*discoveryv1.EndpointSlice `json:"slices,omitempty"`
	// Zones are the zones of the pods' nodes, by node; "" if a node has none. A node that
	// does not exist is missing.
	Zones map[string]string `json:"zones,omitempty"`
	// Capacity is the CPU of each zone, in thousandths. It is collected only if the
	// service wants its hints by capacity, and nil if the CPU of any node is not known.
	Capacity map[string]int64 `json:"capacity,omitempty"`
	// Attempt makes the names of creates differ from those of failed attempts.
	Attempt uint64 `json:"attempt,omitempty"`
	Told    Told   `json:"told,omitzero"`
}

// keysOfNode maps a node that is created or moves to another zone to the services of its
// pods, and a node that changes the capacity of its zone to the services with hints by capacity.
//
// A deleted node changes nothing by itself: its pods may still run, and otherwise they
// are deleted in time.
//
// Upstream: a pod whose node is not known is tried again some times; capacity is weighed
// anew at a change of zone or readiness, here at a change of its processors, too.
func keysOfNode(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	found := map[events.Key]bool{}
	before, _ := was.Object.(*corev1.Node)
	node, _ := now.Object.(*corev1.Node)
	if weighed(before) != weighed(node) {
		for _, svc := range reconcile.List(s, kinds.Services, "") {
			if byCapacity(svc) {
				found[service.Key(svc)] = true
			}
		}
	}
	if node != nil && (before == nil || zone(before) != zone(node)) {
		for _, key := range servicesOn(s, node.Name) {
			found[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b events.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// servicesOn returns the keys of the services of the pods on a node.
func servicesOn(s reconcile.Snapshot, node string) (keys []events.Key) {
	for _, p := range reconcile.List(s, kinds.Pods, "") {
		if p.Spec.NodeName == node {
			keys = append(keys, service.KeysOfPod(s, reconcile.Object{}, reconcile.Object{Kind: kinds.Pods.Kind, Object: p})...)
		}
	}
	return keys
}

func zone(n *corev1.Node) string { return n.Labels[corev1.LabelTopologyZone] }

func observe(s reconcile.Snapshot, k events.Key, most int) (View, bool) {
	svc, ok := reconcile.Get(s, kinds.Services, k.Namespace, k.Name)
	if !ok {
		return View{}, false // the garbage collector deletes its slices
	}
	v := View{Service: svc, Max: most, Attempt: names.Attempt(s, k, svc), Told: toldOf(s, k, svc)}
	if !v.published() {
		return v, true
	}
	v.Pods = service.Pods(s, svc)
	v.Zones = map[string]string{}
	for _, p := range v.Pods {
		if node, ok := reconcile.Get(s, kinds.Nodes, "", p.Spec.NodeName); ok {
			v.Zones[node.Name] = zone(node)
		}
	}
	v.Slices = endpoint.Slices(s, k, manager)
	if byCapacity(svc) {
		v.Capacity = capacity(reconcile.List(s, kinds.Nodes, ""))
	}
	return v, true
}

// published reports whether this controller publishes the service's endpoints.
func (v View) published() bool {
	return v.Service.Spec.Type != corev1.ServiceTypeExternalName && v.Service.Spec.Selector != nil
}

// managed is the value of the label that names the manager of a slice.
var managed = []reconcile.Value{{Path: ".metadata.labels['" + discoveryv1.LabelManagedBy + "']", One: []string{manager}}}
