// Package storageversiongc removes API servers that no longer exist from StorageVersions.
//
// Each API server records, for each resource, in which version it stores objects. Its
// identity is a labelled lease in kube-system. When the lease is gone, so is the server, and
// the controller removes its entries. A StorageVersion without entries is deleted.
//
// Leases are renewed all the time and cause no turns, so a StorageVersion gets a turn when
// it changes and once a minute: a server's lease outlives the server by an hour, and no
// component waits for its end. The controller asks for a lease that it does not see, because
// an API server writes its lease and its entries at about the same time, and one may be seen
// before the other. The record holds the answer because of which entries were removed.
//
// The API is alpha: the controller runs where --feature-gates says that the API server
// serves it, as upstream's does.
package storageversiongc

import (
	"encoding/json"
	"slices"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Upstream: the API server puts this on the lease that is its identity.
const (
	identity  = "apiserver.kubernetes.io/identity"
	apiServer = "kube-apiserver"
)

// Controller removes deleted API servers from StorageVersions.
var Controller = reconcile.Controller[View]{
	Name:     "storageversion-garbage-collector-controller",
	Aliases:  []string{"storage-version-gc"},
	Identity: "storage-version-garbage-collector",
	Queue:    "storage_version_garbage_collector_storageversions",
	Owns:     &kinds.StorageVersions.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.StorageVersions.Kind),
		{Kind: kinds.Leases.Kind},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbAsk, Kind: kinds.Leases.Name},
		{Verb: events.VerbUpdate, Kind: kinds.StorageVersions.Name, Subresource: "status", On: reconcile.Itself},
		{Verb: events.VerbDelete, Kind: kinds.StorageVersions.Name, On: reconcile.Itself, Unchanged: true},
	},
	Remembers: true,
	Settings:  json.RawMessage(`{"storageVersions":true}`), // the controller runs only where they are served
	Observe:   observe,
	Decide:    decide,
}

// View is what the turn of one StorageVersion can see.
type View struct {
	StorageVersion *apiserverinternalv1alpha1.StorageVersion `json:"storageVersion"`
	// Unseen are the servers in it, each once, whose lease is not seen.
	Unseen []string `json:"unseen,omitempty"`
	// Leases tells which servers had a lease at At, in the answers about the StorageVersion
	// as it is seen now. A server that is not in it was not asked for, or the API server
	// could not answer.
	Leases map[string]bool `json:"leases,omitempty"`
	At     time.Time       `json:"at,omitzero"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	found, ok := reconcile.Get(s, kinds.StorageVersions, "", k.Name)
	if !ok {
		return View{}, false
	}
	v := View{StorageVersion: found}
	for i := range found.Status.StorageVersions {
		server := found.Status.StorageVersions[i].APIServerID
		lease, ok := s.Get(kinds.Leases.Name, metav1.NamespaceSystem, server)
		if !(ok && identifies(lease)) && !slices.Contains(v.Unseen, server) {
			v.Unseen = append(v.Unseen, server)
		}
	}
	// A server that has written since may have a lease by now.
	if last, ok := reconcile.Answers(s, k, found); ok {
		for _, r := range last.Results {
			v.hear(r, last.At)
		}
		v.At = last.At
	}
	return v, true
}

// hear reads an answer.
func (v *View) hear(r events.Result, at time.Time) {
	if r.Ref.Kind != kinds.Leases.Name || r.Status != events.Answered && r.Status != events.Absent {
		return
	}
	lease := new(metav1.PartialObjectMetadata)
	if r.Status == events.Answered {
		if err := reconcile.ReadObject(r, kinds.Leases.Kind.Kind, lease); err != nil {
			v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
			return
		}
	}
	if v.Leases == nil {
		v.Leases = map[string]bool{}
	}
	v.Leases[r.Ref.Name] = identifies(lease)
}

// identifies reports whether a lease is the identity of an API server.
func identifies(lease metav1.Object) bool { return lease.GetLabels()[identity] == apiServer }
