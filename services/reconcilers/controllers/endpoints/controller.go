// Package endpoints publishes the addresses of the pods of each Service in one Endpoints
// object. EndpointSlices do the same better; this controller is for clients that still
// read the older kind.
//
// The object is deleted with its service. Until then it has the ready addresses, and
// separately the unready ones, together at most [capacity].
package endpoints

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// managedBy and manager are the label by which the controller marks its objects.
	managedBy = "endpoints.kubernetes.io/managed-by"
	manager   = "endpoint-controller"
	// election is the annotation of an object that belongs to no service: old programs
	// use it as a leader election lock.
	election = "control-plane.alpha.kubernetes.io/leader"
	// capacity is the maximum number of addresses of an object.
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
	Events: reconcile.EventPromises{
		{Kind: kinds.Endpoints.Kind, On: reconcile.Namesake, Reasons: []string{"FailedToCreateEndpoint", "FailedToUpdateEndpoint"}},
	},
	Observe: observe,
	Decide:  decide,
}

// View is the input of one turn.
type View struct {
	// Service is nil if no service has this name.
	Service *corev1.Service `json:"service,omitempty"`
	// Endpoints is the object of this name, nil if there is none.
	Endpoints *corev1.Endpoints `json:"endpoints,omitempty"`
	// Pods are the pods that the service selects.
	Pods []*corev1.Pod `json:"pods,omitempty"`
}

// touched maps an object that is deleted, or that this controller created, to its
// service. An object that another client creates before its service is ignored.
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

// published reports whether this controller publishes the service's endpoints.
func (v View) published() bool {
	return v.Service.Spec.Type != corev1.ServiceTypeExternalName && v.Service.Spec.Selector != nil
}

// managed is the value of the label that names the manager of an object.
var managed = []reconcile.Value{{Path: ".metadata.labels['" + managedBy + "']", One: []string{manager}}}
