package serviceaccounttoken

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide fills in a token, deletes one whose account was deleted, and removes a deleted
// one from its account's list.
//
// Upstream: pkg/controller/serviceaccount/tokens_controller.go
func decide(v View, _ time.Time) reconcile.Decision {
	switch {
	case v.Secret == nil:
		return reconcile.Do("the token is gone, and its account may list it", v.forget()...)
	case len(v.Lists) > 0:
		return reconcile.Do("another token had the name before, and its account may list it", v.forget()...)
	case v.Other:
		return reconcile.Nothing("the Secret is not a service account token")
	case v.Secret.DeletionTimestamp != nil:
		return reconcile.Nothing("the token is being deleted")
	case v.Account == "":
		return reconcile.Do("the token's service account does not exist", v.prove(), v.remove())
	case v.Filled:
		return reconcile.Nothing("the token is complete")
	case v.Unfit:
		return reconcile.Nothing("the API server rejects the token's data")
	default:
		return reconcile.Do("the token may be incomplete", v.fill())
	}
}

func (v View) fill() events.Command {
	name, _ := named(v.Secret)
	return reconcile.FillToken(v.Secret, name, v.Account, reconcile.Noting(note{Account: name, UID: v.Account, Root: v.Root}))
}

func (v View) prove() events.Command {
	name, uid := named(v.Secret)
	return reconcile.ProveToken(v.Secret, reconcile.Noting(note{Account: name, UID: uid, Proof: true}))
}

// remove deletes the token on the condition that the account does not exist.
func (v View) remove() events.Command {
	name, uid := named(v.Secret)
	account := metav1.OwnerReference{APIVersion: "v1", Kind: kinds.ServiceAccounts.Kind.Kind, Name: name, UID: uid}
	return reconcile.Delete(kinds.Secrets.Kind, v.Secret, reconcile.IfUnchanged(v.Secret), reconcile.IfAbsent(account))
}

// forget removes the token from the present lists, whatever the view of them is.
func (v View) forget() []events.Command {
	var patches []events.Command
	body := reconcile.Body(map[string]any{"secrets": []map[string]string{{"$patch": "delete", "name": v.Gone}}})
	for _, account := range v.Lists {
		patches = append(patches, reconcile.Patch(kinds.ServiceAccounts.Kind, account, types.StrategicMergePatchType, body,
			reconcile.Noting(note{Account: account.Name, UID: account.UID, Gone: true})))
	}
	return patches
}
