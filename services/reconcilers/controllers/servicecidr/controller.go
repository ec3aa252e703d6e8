// Package servicecidr protects ServiceCIDRs, the ranges of the Services' addresses, while
// addresses need them.
//
// Every ServiceCIDR gets a finalizer and the condition Ready. A deleted one stays while it
// contains an IPAddress that no other remaining ServiceCIDR contains; its condition says so.
// The controller removes the finalizer ten seconds after the deletion, when the allocators of
// all API servers know of it and allocate no more addresses of the range.
//
// The view of addresses may be older than that, so an address in it only shows that a
// ServiceCIDR must stay. The removal of the finalizer is conditional: the writer lists the
// addresses and the ranges live just before, and refuses if an address would be in no range.
// Another ServiceCIDR counts while it has the finalizer and is not being deleted, because it
// can then go only after such a check of its own, which finds the same address.
package servicecidr

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the ServiceCIDR controller. A key is a ServiceCIDR.
var Controller = reconcile.Controller[View]{
	Name:     "service-cidr-controller",
	Identity: "service-cidrs-controller",
	Queue:    "ipaddresses",
	Owns:     &kinds.ServiceCIDRs.Kind,
	Inputs: []reconcile.Input{
		{Kind: kinds.ServiceCIDRs.Kind, Keys: itAndOverlapping},
		{Kind: kinds.IPAddresses.Kind, Keys: deletedAround},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbPatch, Kind: kinds.ServiceCIDRs.Name, On: reconcile.Itself, Fields: []string{".metadata.finalizers"}, Adds: true,
			Values: []reconcile.Value{{Path: ".metadata.finalizers[*]", One: []string{query.RangeFinalizer}}}},
		{Verb: events.VerbPatch, Kind: kinds.ServiceCIDRs.Name, On: reconcile.Itself, Fields: []string{".metadata.finalizers"}, Unused: true},
		{Verb: events.VerbPatch, Kind: kinds.ServiceCIDRs.Name, Subresource: "status", On: reconcile.Itself, Fields: []string{".status.conditions"}, Adds: true,
			Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{networkingv1.ServiceCIDRConditionReady}}}, How: []types.PatchType{types.ApplyPatchType}},
	},
	Events:  reconcile.EventPromises{{Kind: kinds.ServiceCIDRs.Kind, On: reconcile.Itself, Reasons: []string{notReady}}},
	Observe: observe,
	Decide:  decide,
}

// View is what the turn of one ServiceCIDR can see.
type View struct {
	ServiceCIDR *networkingv1.ServiceCIDR `json:"serviceCIDR"`
	// Address is an IPAddress that needs the range. It is collected only for a deleted one.
	Address string `json:"address,omitempty"`
}

// itAndOverlapping maps a ServiceCIDR to itself and to those with common addresses.
func itAndOverlapping(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, obj := range []reconcile.Object{now, was} {
		of, ok := obj.Object.(*networkingv1.ServiceCIDR)
		if !ok {
			continue
		}
		if key := (events.Key{Name: of.Name}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
		for _, other := range reconcile.List(s, kinds.ServiceCIDRs, "") {
			if key := (events.Key{Name: other.Name}); !slices.Contains(keys, key) && query.RangesOverlap(of, other) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// deletedAround maps an address to the ServiceCIDRs that contain it and are being deleted.
// Others do not depend on addresses.
func deletedAround(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		now = was
	}
	a, allocated := query.Allocated(now)
	if !allocated {
		return nil
	}
	var keys []events.Key
	for _, of := range reconcile.List(s, kinds.ServiceCIDRs, "") {
		if of.DeletionTimestamp != nil && query.InRange(of, a) {
			keys = append(keys, events.Key{Name: of.Name})
		}
	}
	return keys
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	own, ok := reconcile.Get(s, kinds.ServiceCIDRs, "", k.Name)
	if !ok || own.DeletionTimestamp == nil {
		return View{ServiceCIDR: own}, ok
	}
	v, ranges := View{ServiceCIDR: own}, query.RangesOf(own, reconcile.List(s, kinds.ServiceCIDRs, ""))
	for _, address := range s.List(kinds.IPAddresses.Name, "") {
		if ranges.Need(address) {
			v.Address = address.GetName()
			break
		}
	}
	return v, true
}
