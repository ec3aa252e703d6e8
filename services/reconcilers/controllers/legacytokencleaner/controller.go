// Package legacytokencleaner deletes unused tokens that Kubernetes before 1.24 created
// for every ServiceAccount: Secrets that no client has used for a year. It first labels
// such a token as invalid, so that the API server no longer accepts it; a user who still
// needs the token can remove the label. A year later it deletes the token.
//
// The controller sees only the metadata of a Secret. That Kubernetes created the Secret
// shows in its ServiceAccount, which lists it. The metadata does not show that the Secret
// is a token. So each change is a patch that also contains the type, which the API server
// refuses if it differs, because no client can change the type of a Secret. A delete
// follows such a patch that changes nothing.
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
	// DefaultPeriod is the default of [Config].Period.
	DefaultPeriod = 365 * 24 * time.Hour
	// again is the interval at which a token that is due, but that something keeps, is checked again.
	again = 24 * time.Hour
)

// Upstream: pkg/controlplane/controller/legacytokentracking, and pkg/serviceaccount.
const (
	tracking     = "kube-apiserver-legacy-service-account-token-tracking"
	since        = "since"
	lastUsed     = "kubernetes.io/legacy-token-last-used"
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
)

// Config configures the controller.
type Config struct {
	// Period is how long a token must have been unused before it is declared invalid, and
	// how long after that it is deleted; 0 means [DefaultPeriod].
	Period time.Duration `json:"tokenPeriod"`
}

// references are the paths at which containers name Secrets, without values of variables.
var references = func() []redact.Path {
	paths := reconcile.Containers("envFrom")
	for _, variables := range reconcile.Containers("env") {
		paths = append(paths, append(variables, redact.Path{{Each: true}, {Name: "valueFrom"}}...))
	}
	return paths
}()

// New returns the controller. A key is a Secret.
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

// View is the input of the turn of one Secret.
type View struct {
	Secret *metav1.PartialObjectMetadata `json:"secret"`
	Period time.Duration                 `json:"period"`
	// Since is the day since which the API server has recorded the use of tokens, in its
	// format; "" if that is not known.
	Since string `json:"since,omitempty"`
	// Listed is true if the account lists the Secret, as it does for those that
	// Kubernetes created. Needed is true if a pod names the Secret.
	Listed bool `json:"listed,omitempty"`
	Needed bool `json:"needed,omitempty"`
	// Other is true if the API server has answered that the Secret is not a service account token.
	Other bool `json:"other,omitempty"`
}

// perhapsToken ignores Secrets that name no ServiceAccount, because the API server
// accepts no token without that annotation.
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
	if last, ok := reconcile.LastOf(s, k, events.LaneWrite, secret); ok {
		failure, failed := last.Failure()
		v.Other = failed && failure.Code == invalid
	}
	return v, true
}

// invalid is the status with which the API server refuses to change an immutable field.
const invalid = 422

// listed reports whether the ServiceAccount that a Secret names exists and lists it.
func listed(s reconcile.Snapshot, secret *metav1.PartialObjectMetadata) bool {
	account, ok := reconcile.Get(s, kinds.ServiceAccounts, secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey])
	uid := types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])
	return ok && (uid == "" || uid == account.UID) &&
		slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret.Name })
}

// needed reports whether a pod names a Secret, or may: for a pod that is too large for the
// bus only the metadata is known.
func needed(s reconcile.Snapshot, secret *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(s.List(kinds.Pods.Name, secret.Namespace), func(obj metav1.Object) bool {
		p, whole := obj.(*corev1.Pod)
		return !whole || names(p, secret.Name)
	})
}
