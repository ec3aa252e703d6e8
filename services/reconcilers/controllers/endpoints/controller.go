// Package endpoints says, in one Endpoints object for each Service, at which
// addresses its pods can be reached. EndpointSlices say the same better; this is for
// those that still read the older kind.
//
// The object goes with its service. Until then it holds the addresses that are
// ready, and apart from them those that are not, up to [capacity] of them.
package endpoints

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// managedBy and manager are how the controller signs its objects.
	managedBy = "endpoints.kubernetes.io/managed-by"
	manager   = "endpoint-controller"
	// election marks an object that is no service's: programs that were made long ago
	// elect their leader by it.
	election = "control-plane.alpha.kubernetes.io/leader"
	// capacity is how many addresses an object holds at most.
	capacity = 1000
)

// Controller is the endpoints controller. A key is a Service.
var Controller = reconcile.Controller[View]{
	Name:     "endpoints-controller",
	Aliases:  []string{"endpoint"},
	Identity: "endpoint-controller",
	Source:   "endpoint-controller",
	Queue:    "endpoint",
	Owns:     &kinds.Services.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.Services.Kind),
		{Kind: kinds.Pods.Kind, Keys: service.KeysOfPod},
		{Kind: kinds.Endpoints.Kind, Keys: touched},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbCreate, Kind: kinds.Endpoints.Name, On: reconcile.Namesake, Fields: []string{".metadata.labels", ".metadata.annotations", ".subsets"}, Values: managed},
		{Verb: events.VerbUpdate, Kind: kinds.Endpoints.Name, On: reconcile.Namesake, Fields: []string{".metadata", ".subsets"}, Values: managed},
		{Verb: events.VerbDelete, Kind: kinds.Endpoints.Name, On: reconcile.Namesake},
	},
	Tells: reconcile.Tells{
		{Kind: kinds.Endpoints.Kind, On: reconcile.Namesake, Reasons: []string{"FailedToCreateEndpoint", "FailedToUpdateEndpoint"}},
	},
	Observe: observe,
	Decide:  decide,
}

// View is what one turn can see.
type View struct {
	// Service is nil when there is none of this name.
	Service *corev1.Service `json:"service,omitempty"`
	// Endpoints are the object of this name, nil when there is none.
	Endpoints *corev1.Endpoints `json:"endpoints,omitempty"`
	// Pods are those that the service selects.
	Pods []*corev1.Pod `json:"pods,omitempty"`
}

// touched is the service of an object that is gone, or that this controller made.
// One that another client makes before its service is left alone.
//
// Upstream: changes of an object concern no service, and every one that is there at the
// start is looked at.
func touched(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	switch {
	case now.None():
		return []events.Key{service.Key(was)}
	case now.GetLabels()[managedBy] == manager:
		return []events.Key{service.Key(now)}
	default:
		return nil
	}
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	var v View
	if found, ok := reconcile.Get(s, kinds.Endpoints, k.Namespace, k.Name); ok {
		v.Endpoints = found
	}
	svc, ok := reconcile.Get(s, kinds.Services, k.Namespace, k.Name)
	if !ok {
		return v, v.Endpoints != nil
	}
	v.Service = svc
	if v.published() {
		v.Pods = service.Pods(s, svc)
	}
	return v, true
}

// published tells whether the service's endpoints are ours to publish.
func (v View) published() bool {
	return v.Service.Spec.Type != corev1.ServiceTypeExternalName && v.Service.Spec.Selector != nil
}

// managed is what the label says that tells whose an object is.
var managed = []reconcile.Value{{Path: ".metadata.labels['" + managedBy + "']", One: []string{manager}}}
