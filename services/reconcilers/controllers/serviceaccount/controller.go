// Package serviceaccount creates the "default" ServiceAccount in every
// namespace.
//
// Pods that name no account use it, so an active namespace must have it; when a
// client deletes it, the controller creates it again.
package serviceaccount

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// accounts are the accounts of every namespace, sorted.
//
// Upstream: pkg/controller/serviceaccount/serviceaccounts_controller.go,
// DefaultServiceAccountsControllerOptions.
var accounts = []string{"default"}

// Controller is the service account controller. A key is a namespace.
var Controller = reconcile.Controller[View]{
	Name:     "serviceaccount-controller",
	Aliases:  []string{"serviceaccount"},
	Identity: "service-account-controller",
	Queue:    "serviceaccount",
	Owns:     &kinds.Namespaces.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.Namespaces.Kind),
		{Kind: kinds.ServiceAccounts.Kind, Keys: missed},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbCreate, Kind: kinds.ServiceAccounts.Name, On: reconcile.Within, Named: accounts, Fields: []string{}},
	},
	Observe: observe,
	Decide:  decide,
}

// View is what the turn of one namespace can see.
type View struct {
	Namespace *corev1.Namespace `json:"namespace"`
	// Missing are the accounts that the namespace lacks, sorted.
	Missing []string `json:"missing,omitempty"`
}

// missed maps a deleted account that should exist to its namespace.
func missed(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if !now.None() || was.None() || !slices.Contains(accounts, was.GetName()) {
		return nil
	}
	return []events.Key{{Name: was.GetNamespace()}}
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	namespace, ok := reconcile.Get(s, kinds.Namespaces, "", k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Namespace: namespace}
	for _, name := range accounts {
		if _, found := s.Get(kinds.ServiceAccounts.Name, k.Name, name); !found {
			v.Missing = append(v.Missing, name)
		}
	}
	return v, true
}
