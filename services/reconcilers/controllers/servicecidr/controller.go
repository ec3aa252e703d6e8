// Package servicecidr keeps ServiceCIDRs, the ranges from which Services get their addresses,
// for as long as one of these addresses needs them.
//
// Every ServiceCIDR gets a finalizer, and a condition that says that it is ready. One that is
// deleted stays while an IPAddress is in it, and in no other ServiceCIDR that stays; its
// condition says so. The finalizer is taken off ten seconds after the deletion, when the
// allocators of all API servers know of it and give out no address of the range any more.
//
// What is seen of the addresses may be older than that, so it only tells when a ServiceCIDR
// stays. The finalizer goes under a condition of the command: the writer lists the addresses
// and the ranges live, just before it, and refuses where an address would be left in none.
// Another ServiceCIDR counts for as long as it has the finalizer and is not being deleted
// itself: then it can go only after such a look of its own, which finds the same address.
package servicecidr

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the controller of ServiceCIDRs. A key is one of them.
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
			Values: []reconcile.Value{{Path: ".metadata.finalizers[*]", One: []string{events.RangeFinalizer}}}},
		{Verb: events.VerbPatch, Kind: kinds.ServiceCIDRs.Name, On: reconcile.Itself, Fields: []string{".metadata.finalizers"}, Unused: true},
		{Verb: events.VerbPatch, Kind: kinds.ServiceCIDRs.Name, Subresource: "status", On: reconcile.Itself, Fields: []string{".status.conditions"}, Adds: true,
			Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{networkingv1.ServiceCIDRConditionReady}}}, How: []types.PatchType{types.ApplyPatchType}},
	},
	Tells:   reconcile.Tells{{Kind: kinds.ServiceCIDRs.Kind, On: reconcile.Itself, Reasons: []string{notReady}}},
	Observe: observe,
	Decide:  decide,
}

// View is what the turn of one ServiceCIDR can see.
type View struct {
	ServiceCIDR *networkingv1.ServiceCIDR `json:"serviceCIDR"`
	// Address is an IPAddress that needs it. It is looked for when it is deleted.
	Address string `json:"address,omitempty"`
}

// itAndOverlapping are a ServiceCIDR that changes and those that share addresses with it.
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
			if key := (events.Key{Name: other.Name}); !slices.Contains(keys, key) && events.RangesOverlap(of, other) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// deletedAround are the ServiceCIDRs that are being deleted and that an address is in. Of
// others no address is asked.
func deletedAround(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		now = was
	}
	a, allocated := events.Allocated(now)
	if !allocated {
		return nil
	}
	var keys []events.Key
	for _, of := range reconcile.List(s, kinds.ServiceCIDRs, "") {
		if of.DeletionTimestamp != nil && events.InRange(of, a) {
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
	v, ranges := View{ServiceCIDR: own}, events.RangesOf(own, reconcile.List(s, kinds.ServiceCIDRs, ""))
	for _, address := range s.List(kinds.IPAddresses.Name, "") {
		if ranges.Need(address) {
			v.Address = address.GetName()
			break
		}
	}
	return v, true
}
