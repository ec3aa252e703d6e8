// Package bootstrapsigner keeps the signatures of the ConfigMap cluster-info in kube-public. A
// joining node reads there, without credentials, where the API server is and which certificates to
// trust. It verifies them by the signature of the bootstrap token that it was given.
//
// The controller sees neither tokens nor the ConfigMap's content. The writer reads both live, signs
// with the signing tokens, and answers when the first of them expires. So a turn asks the writer to
// sign if the ConfigMap, or a Secret that may be such a token, has changed since the last signing,
// and when a token has expired.
package bootstrapsigner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller signs cluster-info. The only key is that ConfigMap.
var Controller = reconcile.Controller[View]{
	Name:     "bootstrap-signer-controller",
	Aliases:  []string{"bootstrapsigner"},
	Identity: "bootstrap-signer",
	Queue:    "bootstrap_signer_queue",
	Owns:     &kinds.ConfigMaps.Kind,
	Inputs: []reconcile.Input{
		{Kind: kinds.ConfigMaps.Kind, Keys: clusterInfo, Bare: true},
		{Kind: kinds.Secrets.Kind, Keys: perhapsSigner},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbPatch, Kind: kinds.ConfigMaps.Name, Subresource: query.SubSignatures, On: reconcile.Itself, Named: []string{query.ClusterInfo},
			Fields: []string{}, Unchanged: true, How: []types.PatchType{types.MergePatchType}},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// View is the input of a turn.
type View struct {
	// ConfigMap is the metadata of cluster-info, without content.
	ConfigMap *metav1.PartialObjectMetadata `json:"configMap"`
	// Tokens is a digest of the Secrets that may be signing tokens, and their versions.
	Tokens string `json:"tokens"`
	// Signed is true if the writer has processed this version of the ConfigMap and these tokens, at
	// At. Until is when the first token expires. Unseen is true if the writer signed with a token
	// that is not in the snapshot, Unfit if the API server rejects the signatures.
	Signed bool       `json:"signed,omitempty"`
	Unseen bool       `json:"unseen,omitempty"`
	At     time.Time  `json:"at,omitzero"`
	Until  *time.Time `json:"until,omitempty"`
	Unfit  bool       `json:"unfit,omitempty"`
}

// note is the note of a command.
type note struct {
	Tokens string `json:"tokens"`
}

var key = events.Key{Namespace: metav1.NamespacePublic, Name: query.ClusterInfo}

// clusterInfo maps the one ConfigMap that is signed to its key, while it exists.
func clusterInfo(_ reconcile.Snapshot, _, now reconcile.Object) []events.Key {
	if now.None() || now.GetNamespace() != key.Namespace || now.GetName() != key.Name {
		return nil
	}
	return []events.Key{key}
}

// perhapsSigner ignores Secrets whose names show that they sign nothing.
func perhapsSigner(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		now = was
	}
	if _, may := query.MaySign(now); !may {
		return nil
	}
	return []events.Key{key}
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	own, ok := s.Get(kinds.ConfigMaps.Name, key.Namespace, key.Name)
	if !ok || k != key {
		return View{}, false
	}
	v := View{Tokens: digest(s), ConfigMap: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: own.GetUID(), ResourceVersion: own.GetResourceVersion(),
	}}}
	if last, ok := reconcile.LastOf(s, k, events.LaneWrite, own); ok {
		for _, r := range last.Results {
			v.remember(s, r, last)
		}
	}
	return v, true
}

// remember reads the result of a turn about these tokens.
func (v *View) remember(s reconcile.Snapshot, r events.Result, last events.Outcome) {
	var n note
	if r.Answer == nil || json.Unmarshal(r.Answer.Note, &n) != nil || n.Tokens != v.Tokens {
		return
	}
	switch same := reconcile.IsCurrent(last, v.ConfigMap); {
	case r.Code == invalid:
		v.Unfit = same
	case r.Status == events.DryRun && same, r.OK() && r.Version == v.ConfigMap.ResourceVersion:
		var told query.Signatures
		_ = json.Unmarshal(r.Answer.Body, &told) // a body without a time leaves Until nil
		v.Signed, v.At, v.Until = true, last.At, told.Until
		v.Unseen = slices.ContainsFunc(told.By, func(name string) bool {
			_, seen := s.Get(kinds.Secrets.Name, metav1.NamespaceSystem, name)
			return !seen
		})
	}
}

// invalid is the status with which the API server rejects a change, for instance of an immutable
// ConfigMap.
const invalid = 422

func digest(s reconcile.Snapshot) string {
	sum := sha256.New()
	for _, secret := range s.List(kinds.Secrets.Name, metav1.NamespaceSystem) {
		if _, may := query.MaySign(secret); may {
			_, _ = fmt.Fprintln(sum, secret.GetName(), secret.GetUID(), secret.GetResourceVersion())
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
