// Package resourcepoolstatusrequest answers ResourcePoolStatusRequests: how many devices the pools
// of a driver have, and how many of them are allocated.
//
// The controller answers a request once, from one view. It waits until every pool in the answer
// has all slices of its newest generation, so a changed slice of the driver causes a turn. The
// controller deletes a request an hour after its answer, or a day after its creation if it could
// not answer.
//
// The API is alpha: the controller runs where --feature-gates says that the API server serves it
// (DRAResourcePoolStatus), as upstream's does.
package resourcepoolstatusrequest

import (
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller answers requests, and deletes expired ones.
var Controller = reconcile.Controller[View]{
	Name: "resourcepoolstatusrequest-controller",
	Owns: &kinds.ResourcePoolStatusRequests.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.ResourcePoolStatusRequests.Kind),
		{Kind: kinds.ResourceSlices.Kind, Keys: waiting},
		{Kind: kinds.ResourceClaims.Kind},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbUpdate, Kind: kinds.ResourcePoolStatusRequests.Name, Subresource: "status", On: reconcile.Itself,
			Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{resourcev1alpha3.ResourcePoolStatusRequestConditionComplete}}}},
		{Verb: events.VerbDelete, Kind: kinds.ResourcePoolStatusRequests.Name, On: reconcile.Itself},
	},
	Metrics:  metrics,
	Settings: gate.Set{gate.DRAResourcePoolStatus: true}.Settings(), // the controller runs only where they are served
	Observe:  observe,
	Decide:   decide,
}

// waiting maps a slice to the unanswered requests about its driver.
func waiting(s reconcile.Snapshot, was, now reconcile.Object) (keys []events.Key) {
	drivers := map[string]bool{}
	for _, obj := range []metav1.Object{was.Object, now.Object} {
		if slice, ok := obj.(*resourcev1.ResourceSlice); ok {
			drivers[slice.Spec.Driver] = true
		}
	}
	for _, request := range reconcile.List(s, kinds.ResourcePoolStatusRequests, "") {
		if request.Status == nil && drivers[request.Spec.Driver] {
			keys = append(keys, events.Key{Name: request.Name})
		}
	}
	return keys
}
