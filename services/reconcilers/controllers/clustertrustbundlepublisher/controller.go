// Package clustertrustbundlepublisher publishes the cluster's root certificate as the
// ClusterTrustBundle of the signer kubernetes.io/kube-apiserver-serving, for pods that project it
// into a volume. Package rootcapublisher publishes the same certificate in every namespace.
//
// The name of a bundle ends in a hash of its content. So a new root certificate is a new bundle.
// The controller creates it before it deletes the older ones, so a reader always finds one.
//
// The API server serves the API only if it is configured to, so the controller runs only if
// --feature-gates enables it, as upstream's does.
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

// signer is the signer of these bundles.
const signer = "kubernetes.io/kube-apiserver-serving"

// Config configures the publisher.
type Config struct {
	// RootCA is the certificate bundle to publish, PEM-encoded. The controller must not run without
	// one: it would publish an empty set of trusted certificates.
	RootCA []byte `json:"rootCA"`
}

// settings is what turns record: the configuration, and that the API is enabled.
type settings struct {
	Config
	Gates gate.Set `json:"gates"`
}

// New returns the publisher of a certificate bundle. A key is a bundle of the signer: the wanted
// one, whether it exists or not, or one to delete.
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

// nameOf returns the name of a bundle.
//
// Upstream: pkg/controller/certificates/clustertrustbundlepublisher, constructBundleName.
func nameOf(bundle []byte) string {
	sum := sha256.Sum256(bundle)
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), sum[:12])
}

// publisher has the content to publish, and its name.
type publisher struct{ text, name string }

// View is the input of the turn of one bundle.
type View struct {
	Name string `json:"name"`
	// Bundle is the bundle of that name, nil if the signer has none.
	Bundle *certificatesv1beta1.ClusterTrustBundle `json:"trustBundle,omitempty"`
	// Wanted is the wanted content; empty for a bundle to delete.
	Wanted string `json:"wanted,omitempty"`
	// Succeeded is true if the wanted bundle exists with the wanted content.
	Succeeded bool `json:"succeeded,omitempty"`
}

// touched maps a bundle of the signer to itself and, if it is the wanted one, to those to delete
// after it.
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

// begin asks for the turn of the wanted bundle, which need not exist, when the watch begins: every
// cluster has this namespace.
func (p publisher) begin(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if !was.None() || now.None() || now.GetName() != metav1.NamespaceSystem {
		return nil
	}
	return []events.Key{{Name: p.name}}
}

// of returns a bundle if it is one of the signer.
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
