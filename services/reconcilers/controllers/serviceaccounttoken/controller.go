// Package serviceaccounttoken fills in the tokens of service accounts that are kept in
// Secrets: a user who makes a Secret of that type, and names an account in an annotation,
// finds token, root certificate and namespace in it a moment later. A token goes with its
// account, and an account forgets the token that is gone.
//
// Of a Secret no reconciler sees more than the metadata. What it holds, and whether it is
// a token at all, the writer finds out, with the key that signs: it completes what is asked
// for here with what the Secret lacks, and says no more than whether it did. So each
// version of a Secret is looked at once. Before a token is deleted, a patch proves that it
// is one.
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
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Name is the controller's name.
const Name = "serviceaccount-token-controller"

// Config is what the controller needs to know.
type Config struct {
	// RootCA is the root certificate that the writer puts beside each token, PEM-encoded;
	// empty when it uses its own. Another one makes every token's turn.
	RootCA []byte `json:"rootCA,omitempty"`
	// Tokens is true where the writer has the key that signs tokens. Without, the
	// controller must not be run.
	Tokens bool `json:"tokens"`
}

// New makes the controller. A key is a Secret.
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
			{Verb: events.VerbPatch, Kind: kinds.Secrets.Name, Subresource: events.SubToken, On: reconcile.Itself, Unchanged: true, How: patches,
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
	// Secret is nil when it is gone.
	Secret *metav1.PartialObjectMetadata `json:"secret,omitempty"`
	// Account is the uid of the account that it names, as far as is seen.
	Account types.UID `json:"account,omitempty"`
	// Root is a digest of the root certificate.
	Root string `json:"root,omitempty"`
	// Filled is true when the writer has looked at this version of it, and with this
	// root certificate nothing is lacking; Unfit when the API server does not take what
	// this version lacks; Other when it is no token, and never will be.
	Filled bool `json:"filled,omitempty"`
	Unfit  bool `json:"unfit,omitempty"`
	Other  bool `json:"other,omitempty"`
	// Gone is its name when it is gone, or when another one had the name before, and Lists
	// are the accounts that may list that.
	Gone  string                   `json:"gone,omitempty"`
	Lists []*corev1.ServiceAccount `json:"lists,omitempty"`
}

// note is what comes back of each command on a Secret.
type note struct {
	// Account and UID are of the account that it names, Root is the view's.
	Account string    `json:"account"`
	UID     types.UID `json:"uid,omitempty"`
	Root    string    `json:"root,omitempty"`
	// Proof is true when the command says nothing but that it is a token, Gone when it
	// takes one that is gone off the account's list.
	Proof bool `json:"proof,omitempty"`
	Gone  bool `json:"gone,omitempty"`
}

// perhapsToken leaves out what says of no account that it is its token: it is none, or
// of none.
func perhapsToken(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		now = was
	}
	if now.None() || now.GetAnnotations()[corev1.ServiceAccountNameKey] == "" {
		return nil
	}
	return []events.Key{{Namespace: now.GetNamespace(), Name: now.GetName()}}
}

// tokensOf are the tokens of an account that comes or goes.
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
	former, _ := reconcile.LastOfAny(s, k, events.Act)
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
	if last, ok := reconcile.LastOf(s, k, events.Act, secret); ok {
		v.remember(last)
	} else if v.Lists = before(s, k, former, name); len(v.Lists) > 0 {
		v.Gone = k.Name
	}
	return v, true
}

// named is the account that a Secret names, and its uid, where it says which.
func named(secret metav1.Object) (name string, uid types.UID) {
	said := secret.GetAnnotations()
	return said[corev1.ServiceAccountNameKey], types.UID(said[corev1.ServiceAccountUIDKey])
}

// remember takes in what came of the last turn of this Secret.
func (v *View) remember(last events.Outcome) {
	for _, r := range last.Results {
		n, ok := noteOf(r)
		switch {
		case !ok:
		case isNone(r, n):
			v.Other = true
		case r.Code == invalid:
			v.Unfit = last.ResourceVersion == v.Secret.ResourceVersion
		case r.OK() && !n.Proof && !n.Gone:
			v.Filled = r.Version == v.Secret.ResourceVersion && n.Root == v.Root
		}
	}
}

// invalid is how the API server answers to a patch that says another type, and to all
// else that it does not take.
const invalid = 422

// isNone tells whether a result says that the Secret is no token.
func isNone(r events.Result, n note) bool {
	return r.Code == invalid && (n.Proof || r.Reason == events.NoToken)
}

func noteOf(r events.Result) (n note, ok bool) {
	if r.Answer == nil {
		return note{}, false
	}
	return n, json.Unmarshal(r.Answer.Note, &n) == nil
}

// lists are the accounts that may list a token that is gone. It is the one whose it was,
// whatever is seen of its list, which may be older; where that is not remembered, all that
// are seen to list it.
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

// before is the account that may list the token that had the name before, unless it is
// the one whose the token of that name is now.
func before(s reconcile.Snapshot, k events.Key, last events.Outcome, now string) []*corev1.ServiceAccount {
	whose, _ := ownerOf(last)
	account, ok := reconcile.Get(s, kinds.ServiceAccounts, k.Namespace, whose.Account)
	if !ok || whose.Account == now || !whose.is(account) {
		return nil
	}
	return []*corev1.ServiceAccount{account}
}

// ownerOf is whose the Secret of an outcome was: no account's, when it was no token, or when
// its end has been dealt with. forgotten is true when the outcome does not say.
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

// is tells whether an account is the one that is noted.
func (n note) is(account *corev1.ServiceAccount) bool {
	return n.Account != "" && account.Name == n.Account && (n.UID == "" || n.UID == account.UID)
}

// patches are those of Secrets.
var patches = []types.PatchType{types.MergePatchType}
