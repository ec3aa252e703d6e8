// Package clustertrustbundlepublisher publishes the cluster's root certificate as the
// ClusterTrustBundle of the signer kubernetes.io/kube-apiserver-serving, for pods that have it
// projected into a volume. It is a sister of rootcapublisher, which puts the same into every
// namespace.
//
// The name of a bundle ends in a hash of what is in it. So another root certificate is another
// bundle, which is created first; then the older ones go. A reader always finds one.
//
// The API is off unless the API server is told to serve it: the controller runs where
// --feature-gates says so, as upstream's does.
package clustertrustbundlepublisher

import (
	"crypto/sha256"
	"fmt"
	"strings"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// signer is whose bundles these are.
const signer = "kubernetes.io/kube-apiserver-serving"

// Config is what the publisher needs to know.
type Config struct {
	// RootCA is the certificate bundle to publish, PEM-encoded. The controller must not be run
	// without one: it would publish that nothing is trusted.
	RootCA []byte `json:"rootCA"`
}

// settings are what a turn records: that the bundles are served, too.
type settings struct {
	Config
	Gates gate.Set `json:"gates"`
}

// New makes the publisher of a certificate bundle. A key is a bundle of the signer: the one that
// is to be there, whether it is or not, and those that are to go.
func New(config Config) reconcile.Controller[View] {
	p := publisher{text: string(config.RootCA), name: nameOf(config.RootCA)}
	return reconcile.Controller[View]{
		Name:     "kube-apiserver-serving-clustertrustbundle-publisher-controller",
		Identity: "kube-apiserver-serving-clustertrustbundle-publisher",
		Queue:    "ca_cert_publisher_cluster_trust_bundles",
		Owns:     &kinds.ClusterTrustBundles.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.ClusterTrustBundles.Kind, Keys: p.touched},
			{Kind: kinds.Namespaces.Kind, Named: []string{metav1.NamespaceSystem}, Keys: p.begin},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.ClusterTrustBundles.Name, On: reconcile.Itself, Fields: []string{".spec.signerName", ".spec.trustBundle"}, Values: ofSigner},
			{Verb: events.VerbUpdate, Kind: kinds.ClusterTrustBundles.Name, On: reconcile.Itself, Values: ofSigner, Changes: []string{".spec.trustBundle"}},
			{Verb: events.VerbDelete, Kind: kinds.ClusterTrustBundles.Name, On: reconcile.Itself},
		},
		Settings: reconcile.Body(settings{config, gate.Set{gate.ClusterTrustBundle: true}}),
		Observe:  p.observe,
		Decide:   decide,
	}
}

var ofSigner = []reconcile.Value{{Path: ".spec.signerName", One: []string{signer}}}

// nameOf is the name of a bundle.
//
// Upstream: pkg/controller/certificates/clustertrustbundlepublisher, constructBundleName.
func nameOf(bundle []byte) string {
	sum := sha256.Sum256(bundle)
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), sum[:12])
}

// publisher is what is to be published, and under which name.
type publisher struct{ text, name string }

// View is what the turn of one bundle can see.
type View struct {
	Name string `json:"name"`
	// Bundle is the bundle of that name, nil when the signer has none.
	Bundle *certificatesv1beta1.ClusterTrustBundle `json:"trustBundle,omitempty"`
	// Wanted is what is to be in it; empty for one that is to go.
	Wanted string `json:"wanted,omitempty"`
	// Succeeded is true when the one that is to be there is there, as it is to be.
	Succeeded bool `json:"succeeded,omitempty"`
}

// touched are the bundles whose turn it is when one of the signer changes: itself, and where it
// is the one that is to be there, those that are to go after it.
func (p publisher) touched(s reconcile.Snapshot, was, now reconcile.Object) (keys []events.Key) {
	if now.None() {
		now = was
	}
	if of(now.Object) == nil {
		return nil
	}
	keys = append(keys, events.Key{Name: now.GetName()})
	if now.GetName() != p.name {
		return keys
	}
	for _, other := range reconcile.List(s, kinds.ClusterTrustBundles, "") {
		if of(other) != nil && other.Name != p.name {
			keys = append(keys, events.Key{Name: other.Name})
		}
	}
	return keys
}

// begin makes it the turn of the bundle that is to be there, which need not be: every cluster
// has this namespace.
func (p publisher) begin(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if !was.None() || now.None() || now.GetName() != metav1.NamespaceSystem {
		return nil
	}
	return []events.Key{{Name: p.name}}
}

// of is a bundle, if it is one of the signer.
func of(obj metav1.Object) *certificatesv1beta1.ClusterTrustBundle {
	if b, ok := obj.(*certificatesv1beta1.ClusterTrustBundle); ok && b.Spec.SignerName == signer {
		return b
	}
	return nil
}

func (p publisher) observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	v := View{Name: k.Name}
	if b, ok := reconcile.Get(s, kinds.ClusterTrustBundles, "", k.Name); ok {
		v.Bundle = of(b)
	}
	if k.Name == p.name {
		v.Wanted = p.text
		return v, true
	}
	if b, ok := reconcile.Get(s, kinds.ClusterTrustBundles, "", p.name); ok && of(b) != nil {
		v.Succeeded = b.Spec.TrustBundle == p.text
	}
	return v, v.Bundle != nil
}
