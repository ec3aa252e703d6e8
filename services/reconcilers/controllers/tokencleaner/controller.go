// Package tokencleaner deletes expired bootstrap tokens: Secrets in kube-system with which
// nodes join a cluster.
//
// Reconcilers see only the metadata of a Secret, so neither its type nor its expiry. The
// controller asks the writer for these once for each version of a Secret, and the writer
// answers nothing else about the Secret. The turn comes when the token expires. The delete is
// conditional on the version that the answer is about, so a token that was prolonged in the
// meantime stays.
package tokencleaner

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller deletes expired tokens. A key is a Secret.
var Controller = reconcile.Controller[View]{
	Name:     "token-cleaner-controller",
	Aliases:  []string{"tokencleaner"},
	Identity: "token-cleaner",
	Queue:    "token_cleaner",
	Owns:     &kinds.Secrets.Kind,
	Inputs:   []reconcile.Input{{Kind: kinds.Secrets.Kind, Keys: inSystem}},
	Writes: reconcile.Writes{
		{Verb: events.VerbAsk, Kind: kinds.Secrets.Name, Subresource: query.SubExpiry, On: reconcile.Itself, Unchanged: true},
		{Verb: events.VerbDelete, Kind: kinds.Secrets.Name, On: reconcile.Itself, Unchanged: true},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// View is what the turn of one Secret can see.
type View struct {
	Secret *metav1.PartialObjectMetadata `json:"secret"`
	// Expiry is the writer's answer about the Secret; nil if there is none.
	Expiry *query.Expiry `json:"expiry,omitempty"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
}

// inSystem skips Secrets of other namespaces, which are no bootstrap tokens, and deleted
// ones.
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
	if last, ok := reconcile.LastOf(s, k, events.LaneWrite, secret); ok {
		for _, r := range last.Results {
			v.hear(r, reconcile.IsCurrent(last, secret), last.At)
		}
	}
	return v, true
}

// hear reads an answer. That a Secret has another type is valid for all its versions,
// everything else only for the version that was asked about.
func (v *View) hear(r events.Result, same bool, at time.Time) {
	if r.Status != events.Answered {
		return
	}
	told := new(query.Expiry)
	switch err := reconcile.Read(r, told); {
	case err == nil && (same || told.Other):
		v.Expiry = told
	case err != nil && same:
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
	}
}
