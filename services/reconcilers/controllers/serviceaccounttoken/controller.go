// Package serviceaccounttoken fills in the service account tokens in Secrets: a user who
// creates a Secret of that type, with an account in an annotation, finds the token, the root
// certificate and the namespace in it a moment later. The controller deletes a token whose
// account was deleted, and removes a deleted token from its account's list.
//
// Reconcilers see only the metadata of a Secret. The writer, which has the signing key,
// finds out what the Secret holds and whether it is a token at all. It adds what the Secret
// lacks to the controller's request, and answers only whether it did. So the controller asks
// once for each version of a Secret. Before it deletes a token, a patch proves that the
// Secret is one.
package serviceaccounttoken

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Name is the controller's name.
const Name = "serviceaccount-token-controller"

// Config is the configuration of the controller.
type Config struct {
	// RootCA is the root certificate that the writer adds to each token, PEM-encoded; empty
	// if the writer uses its own. Another certificate causes a turn of every token.
	RootCA []byte `json:"rootCA,omitempty"`
	// Tokens is true if the writer has the key that signs tokens. Without it the controller
	// must not run.
	Tokens bool `json:"tokens"`
}

// New returns the controller. A key is a Secret.
func New(config Config) reconcile.Controller[View] {
	sum := sha256.Sum256(config.RootCA)
	root := hex.EncodeToString(sum[:8])
	return reconcile.Controller[View]{
		Name:    Name,
		Aliases: []string{"serviceaccount-token"},
		// Upstream: this one alone acts as kube-controller-manager itself, which may far
		// more; this is the name of its client.
		Identity: "tokens-controller",
		Queue:    "serviceaccount_tokens_service",
		Owns:     &kinds.Secrets.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Secrets.Kind, Keys: perhapsToken},
			{Kind: kinds.ServiceAccounts.Kind, Keys: tokensOf},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbPatch, Kind: kinds.Secrets.Name, Subresource: query.SubToken, On: reconcile.Itself, Unchanged: true, How: patches,
				Fields: []string{".metadata.annotations['" + corev1.ServiceAccountNameKey + "']", ".metadata.annotations['" + corev1.ServiceAccountUIDKey + "']"}},
			{Verb: events.VerbPatch, Kind: kinds.Secrets.Name, On: reconcile.Itself, Unchanged: true, How: patches, Fields: []string{".type"},
				Values: []reconcile.Value{{Path: ".type", One: []string{string(corev1.SecretTypeServiceAccountToken)}}}},
			{Verb: events.VerbDelete, Kind: kinds.Secrets.Name, On: reconcile.Itself, Unchanged: true,
				Absent: &reconcile.Absent{Kind: kinds.ServiceAccounts.Kind.Kind, NamedBy: ".metadata.annotations['" + corev1.ServiceAccountNameKey + "']", UIDBy: ".metadata.annotations['" + corev1.ServiceAccountUIDKey + "']"}},
			{Verb: events.VerbPatch, Kind: kinds.ServiceAccounts.Name, On: reconcile.Beside, Fields: []string{".secrets"}, Removes: true},
		},
		Remembers: true,
		Settings:  reconcile.Body(config),
		Observe:   func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, root) },
		Decide:    decide,
	}
}

// View is what the turn of one Secret can see.
type View struct {
	// Secret is nil if it was deleted.
	Secret *metav1.PartialObjectMetadata `json:"secret,omitempty"`
	// Account is the uid of the account that the Secret names, as far as seen.
	Account types.UID `json:"account,omitempty"`
	// Root is a digest of the root certificate.
	Root string `json:"root,omitempty"`
	// Filled is true if the writer has checked this version of the Secret and nothing is
	// missing with this root certificate. Unfit is true if the API server refuses what this
	// version lacks. Other is true if the Secret is not a service account token and never will be.
	Filled bool `json:"filled,omitempty"`
	Unfit  bool `json:"unfit,omitempty"`
	Other  bool `json:"other,omitempty"`
	// Gone is the name of a deleted Secret, or of an earlier one of the same name. Lists are
	// the accounts that may list it.
	Gone  string                   `json:"gone,omitempty"`
	Lists []*corev1.ServiceAccount `json:"lists,omitempty"`
}

// note is the note of each command on a Secret.
type note struct {
	// Account and UID are of the account that the Secret names, Root is the view's.
	Account string    `json:"account"`
	UID     types.UID `json:"uid,omitempty"`
	Root    string    `json:"root,omitempty"`
	// Proof is true if the command only proves that the Secret is a token. Gone is true if
	// it removes a deleted token from the account's list.
	Proof bool `json:"proof,omitempty"`
	Gone  bool `json:"gone,omitempty"`
}

// perhapsToken skips Secrets that name no account, because they are no tokens of one.
func perhapsToken(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		now = was
	}
	if now.None() || now.GetAnnotations()[corev1.ServiceAccountNameKey] == "" {
		return nil
	}
	return []events.Key{{Namespace: now.GetNamespace(), Name: now.GetName()}}
}

// tokensOf maps a created or deleted account to its tokens.
func tokensOf(s reconcile.Snapshot, was, now reconcile.Object) (keys []events.Key) {
	if !was.None() && !now.None() && was.GetUID() == now.GetUID() {
		return nil
	}
	account := now
	if account.None() {
		account = was
	}
	for _, secret := range reconcile.List(s, kinds.Secrets, account.GetNamespace()) {
		if secret.Annotations[corev1.ServiceAccountNameKey] == account.GetName() {
			keys = append(keys, events.Key{Namespace: secret.Namespace, Name: secret.Name})
		}
	}
	return keys
}

func observe(s reconcile.Snapshot, k events.Key, root string) (View, bool) {
	former, _ := reconcile.LastOfAny(s, k, events.LaneWrite)
	secret, ok := reconcile.Get(s, kinds.Secrets, k.Namespace, k.Name)
	if !ok {
		v := View{Gone: k.Name, Lists: lists(s, k, former)}
		return v, len(v.Lists) > 0
	}
	name, uid := named(secret)
	if name == "" {
		return View{}, false
	}
	v := View{Secret: secret, Root: root}
	account, ok := reconcile.Get(s, kinds.ServiceAccounts, k.Namespace, name)
	if ok && (uid == "" || uid == account.UID) {
		v.Account = account.UID
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneWrite, secret); ok {
		v.remember(last)
	} else if v.Lists = before(s, k, former, name); len(v.Lists) > 0 {
		v.Gone = k.Name
	}
	return v, true
}

// named is the account that a Secret names, and its uid if the Secret has that.
func named(secret metav1.Object) (name string, uid types.UID) {
	said := secret.GetAnnotations()
	return said[corev1.ServiceAccountNameKey], types.UID(said[corev1.ServiceAccountUIDKey])
}

// remember reads the results of the last turn of this Secret.
func (v *View) remember(last events.Outcome) {
	for _, r := range last.Results {
		n, ok := noteOf(r)
		switch {
		case !ok:
		case isNone(r, n):
			v.Other = true
		case r.Code == invalid:
			v.Unfit = reconcile.IsCurrent(last, v.Secret)
		case r.OK() && !n.Proof && !n.Gone:
			v.Filled = r.Version == v.Secret.ResourceVersion && n.Root == v.Root
		}
	}
}

// invalid is the API server's answer to a patch of the type, and to everything else that it
// does not accept.
const invalid = 422

// isNone reports whether a result shows that the Secret is not a service account token.
func isNone(r events.Result, n note) bool {
	return r.Code == invalid && (n.Proof || r.Reason == query.NoToken)
}

func noteOf(r events.Result) (n note, ok bool) {
	if r.Answer == nil {
		return note{}, false
	}
	return n, json.Unmarshal(r.Answer.Note, &n) == nil
}

// lists are the accounts that may list a deleted token: the account that owned it, whatever
// the view of its list is, which may be older. If the owner is not remembered, all accounts
// that are seen to list it.
func lists(s reconcile.Snapshot, k events.Key, last events.Outcome) (all []*corev1.ServiceAccount) {
	whose, forgotten := ownerOf(last)
	for _, account := range reconcile.List(s, kinds.ServiceAccounts, k.Namespace) {
		lists := slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == k.Name })
		if forgotten && lists || whose.is(account) {
			all = append(all, account)
		}
	}
	return all
}

// before is the account that may list the previous token of the name, unless it also owns
// the present one.
func before(s reconcile.Snapshot, k events.Key, last events.Outcome, now string) []*corev1.ServiceAccount {
	whose, _ := ownerOf(last)
	account, ok := reconcile.Get(s, kinds.ServiceAccounts, k.Namespace, whose.Account)
	if !ok || whose.Account == now || !whose.is(account) {
		return nil
	}
	return []*corev1.ServiceAccount{account}
}

// ownerOf is the account that owned the Secret of an outcome; none if the Secret was no
// token, or its deletion has been handled. forgotten is true if the outcome does not tell.
func ownerOf(last events.Outcome) (whose note, forgotten bool) {
	forgotten = true
	for _, r := range last.Results {
		n, ok := noteOf(r)
		switch {
		case !ok:
		case isNone(r, n), n.Gone && r.OK():
			return note{}, false
		default:
			whose, forgotten = n, false
		}
	}
	return whose, forgotten
}

// is reports whether an account is the noted one.
func (n note) is(account *corev1.ServiceAccount) bool {
	return n.Account != "" && account.Name == n.Account && (n.UID == "" || n.UID == account.UID)
}

// patches are the patch types for Secrets.
var patches = []types.PatchType{types.MergePatchType}
