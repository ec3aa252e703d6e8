// Package serviceaccount gives every namespace its "default" ServiceAccount.
//
// Pods that name no account run as that one, so an active namespace must have
// it; when somebody deletes it, it is made anew.
package serviceaccount

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// accounts are what every namespace has, sorted.
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
	Writes:  reconcile.Writes{{Verb: events.VerbCreate, Kind: kinds.ServiceAccounts.Name}},
	Observe: observe,
	Decide:  decide,
}

// View is what the turn of one namespace can see.
type View struct {
	Namespace *corev1.Namespace `json:"namespace"`
	// Missing are the accounts that it should have and has not, sorted.
	Missing []string `json:"missing,omitempty"`
}

// missed is the namespace of an account that is gone and should be there.
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

func decide(v View, _ time.Time) reconcile.Decision {
	switch {
	case v.Namespace.Status.Phase != corev1.NamespaceActive:
		// Where the view is behind, the API server refuses until it has caught up.
		return reconcile.Nothing("the namespace is not active")
	case len(v.Missing) == 0:
		return reconcile.Nothing("the namespace has its accounts")
	default:
		return reconcile.Do("the namespace lacks an account", v.births()...)
	}
}

func (v View) births() []events.Command {
	body := reconcile.Body(corev1.ServiceAccount{})
	births := make([]events.Command, len(v.Missing))
	for i, name := range v.Missing {
		births[i] = reconcile.Create(kinds.ServiceAccounts.Kind, v.Namespace.Name, name, body)
	}
	return births
}
