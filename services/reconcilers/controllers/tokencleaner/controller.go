// Package tokencleaner deletes bootstrap tokens that have expired: Secrets in kube-system
// with which nodes join a cluster.
//
// Nothing but the metadata of a Secret is seen here, so neither its type nor when it expires
// is. The writer is asked for that, once for each version of a Secret, and tells nothing else
// of what the Secret holds. The turn comes when the token expires. The delete holds for the
// version that the answer is about: a token that was prolonged in the meantime stays.
package tokencleaner

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller deletes tokens that have expired. A key is a Secret.
var Controller = reconcile.Controller[View]{
	Name:     "token-cleaner-controller",
	Aliases:  []string{"tokencleaner"},
	Identity: "token-cleaner",
	Queue:    "token_cleaner",
	Owns:     &kinds.Secrets.Kind,
	Inputs:   []reconcile.Input{{Kind: kinds.Secrets.Kind, Keys: inSystem}},
	Writes: reconcile.Writes{
		{Verb: events.VerbAsk, Kind: kinds.Secrets.Name, Subresource: events.SubExpiry, On: reconcile.Itself, Unchanged: true},
		{Verb: events.VerbDelete, Kind: kinds.Secrets.Name, On: reconcile.Itself, Unchanged: true},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// View is what the turn of one Secret can see.
type View struct {
	Secret *metav1.PartialObjectMetadata `json:"secret"`
	// Expiry is what the writer told of the Secret as it is seen; nil when it has not been
	// asked, or has not answered.
	Expiry *events.Expiry `json:"expiry,omitempty"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
}

// inSystem leaves out Secrets of other namespaces, of which none is a bootstrap token, and
// those that are gone.
func inSystem(_ reconcile.Snapshot, _, now reconcile.Object) []events.Key {
	if now.None() || now.GetNamespace() != metav1.NamespaceSystem {
		return nil
	}
	return []events.Key{{Namespace: now.GetNamespace(), Name: now.GetName()}}
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	secret, ok := reconcile.Get(s, kinds.Secrets, k.Namespace, k.Name)
	if !ok || k.Namespace != metav1.NamespaceSystem {
		return View{}, false
	}
	v := View{Secret: secret}
	if last, ok := reconcile.LastOf(s, k, events.Act, secret); ok {
		for _, r := range last.Results {
			v.hear(r, last.ResourceVersion == secret.ResourceVersion, last.At)
		}
	}
	return v, true
}

// hear takes in an answer. That a Secret is of another type holds for every version of it,
// all else for the one that was asked about.
func (v *View) hear(r events.Result, same bool, at time.Time) {
	if r.Status != events.Answered {
		return
	}
	told := new(events.Expiry)
	switch err := reconcile.Read(r, told); {
	case err == nil && (same || told.Other):
		v.Expiry = told
	case err != nil && same:
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
	}
}
