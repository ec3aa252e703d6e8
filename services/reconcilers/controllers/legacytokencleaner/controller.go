// Package legacytokencleaner takes away what is left of the tokens that Kubernetes
// before 1.24 made for every ServiceAccount: Secrets that no client has used for a year.
// Such a token is declared invalid first, by a label, with which the API server no
// longer accepts it; a user who still needs it can take the label off. A year later it
// is deleted.
//
// Of a Secret only the API server sees more here than the metadata. That it
// was made by Kubernetes shows in its account, which lists it. That it is a token is
// not in the metadata: so each change is a patch that also says the type, which is
// the same or is refused, since no client can change the type of a Secret. A delete comes
// after such a patch that changes nothing.
package legacytokencleaner

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// DefaultPeriod is how long a token must not have been used unless it is said
	// otherwise.
	DefaultPeriod = 365 * 24 * time.Hour
	// again is how often it is looked again at a token whose time has come, but which
	// something keeps.
	again = 24 * time.Hour
)

// Upstream: pkg/controlplane/controller/legacytokentracking, and pkg/serviceaccount.
const (
	tracking     = "kube-apiserver-legacy-service-account-token-tracking"
	since        = "since"
	lastUsed     = "kubernetes.io/legacy-token-last-used"
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
)

// Config is what the controller needs to know.
type Config struct {
	// Period is how long a token must not have been used before it is declared invalid,
	// and how long after that it is deleted; 0 means [DefaultPeriod].
	Period time.Duration `json:"tokenPeriod"`
}

// references are where containers name Secrets; values of variables are none.
var references = func() []redact.Path {
	paths := reconcile.Containers("envFrom")
	for _, variables := range reconcile.Containers("env") {
		paths = append(paths, append(variables, redact.Path{{Each: true}, {Name: "valueFrom"}}...))
	}
	return paths
}()

// New makes the controller. A key is a Secret.
func New(config Config) reconcile.Controller[View] {
	config.Period = cmp.Or(config.Period, DefaultPeriod)
	return reconcile.Controller[View]{
		Name:     "legacy-serviceaccount-token-cleaner-controller",
		Aliases:  []string{"legacy-service-account-token-cleaner"},
		Identity: "legacy-service-account-token-cleaner",
		Owns:     &kinds.Secrets.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Secrets.Kind, Keys: perhapsToken},
			{Kind: kinds.ServiceAccounts.Kind},
			{Kind: kinds.Pods.Kind, Also: references},
			{Kind: kinds.ConfigMaps.Kind, Named: []string{tracking}},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbPatch, Kind: kinds.Secrets.Name, On: reconcile.Itself, Unchanged: true, How: []types.PatchType{types.MergePatchType},
				Fields: []string{".metadata.labels['" + invalidSince + "']", ".type"}, Values: []reconcile.Value{{Path: ".type", One: []string{string(corev1.SecretTypeServiceAccountToken)}}}},
			{Verb: events.VerbDelete, Kind: kinds.Secrets.Name, On: reconcile.Itself, Unchanged: true, Where: ".metadata.labels['" + invalidSince + "']"},
		},
		Settings: reconcile.Body(config),
		Observe:  func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, config.Period) },
		Decide:   decide,
	}
}

// View is what the turn of one Secret can see.
type View struct {
	Secret *metav1.PartialObjectMetadata `json:"secret"`
	Period time.Duration                 `json:"period"`
	// Since is the day from which on the API server notes which tokens are used, as it
	// writes it; "" when it does not say.
	Since string `json:"since,omitempty"`
	// Listed is true when the account lists the Secret, as those do that Kubernetes
	// made; Needed when a pod names it.
	Listed bool `json:"listed,omitempty"`
	Needed bool `json:"needed,omitempty"`
	// Other is true when the API server has said that it is no token.
	Other bool `json:"other,omitempty"`
}

// perhapsToken leaves out what says of no account that it is its token: the API server
// takes no token without.
func perhapsToken(_ reconcile.Snapshot, _, now reconcile.Object) []events.Key {
	if now.None() || now.GetAnnotations()[corev1.ServiceAccountNameKey] == "" {
		return nil
	}
	return []events.Key{{Namespace: now.GetNamespace(), Name: now.GetName()}}
}

func observe(s reconcile.Snapshot, k events.Key, period time.Duration) (View, bool) {
	secret, ok := reconcile.Get(s, kinds.Secrets, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Secret: secret, Period: period, Listed: listed(s, secret), Needed: needed(s, secret)}
	if noted, ok := reconcile.Get(s, kinds.ConfigMaps, metav1.NamespaceSystem, tracking); ok {
		v.Since = noted.Data[since]
	}
	if last, ok := reconcile.LastOf(s, k, events.Act, secret); ok {
		failure, failed := last.Failure()
		v.Other = failed && failure.Code == invalid
	}
	return v, true
}

// invalid is how the API server refuses to change what cannot be changed.
const invalid = 422

// listed tells whether the account that a Secret names is there and lists it.
func listed(s reconcile.Snapshot, secret *metav1.PartialObjectMetadata) bool {
	account, ok := reconcile.Get(s, kinds.ServiceAccounts, secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey])
	uid := types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])
	return ok && (uid == "" || uid == account.UID) &&
		slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret.Name })
}

// needed tells whether a pod names a Secret, or may: of one that is too large for the
// bus only the metadata is known.
func needed(s reconcile.Snapshot, secret *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(s.List(kinds.Pods.Name, secret.Namespace), func(obj metav1.Object) bool {
		p, whole := obj.(*corev1.Pod)
		return !whole || names(p, secret.Name)
	})
}
