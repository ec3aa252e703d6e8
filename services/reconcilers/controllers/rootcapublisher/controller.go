// Package rootcapublisher publishes the cluster's root certificate in every
// namespace, as the ConfigMap "kube-root-ca.crt".
//
// Pods need it to trust the API server. The controller creates the ConfigMap for
// each namespace, creates it again when a client deletes it, and corrects it
// when a client changes it.
package rootcapublisher

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Upstream: pkg/controller/certificates/rootcacertpublisher. Users and tools
// read the names and the description, so they are the same to the letter.
const (
	configMap   = "kube-root-ca.crt"
	certificate = "ca.crt"
	annotation  = "kubernetes.io/description"
	description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// Name is the controller's name.
const Name = "root-ca-certificate-publisher-controller"

// Config is the configuration of the publisher.
type Config struct {
	// RootCA is the certificate bundle to publish, PEM-encoded. The controller
	// must not run without one, because it would publish an empty bundle.
	RootCA []byte `json:"rootCA"`
}

// New returns the publisher of a certificate bundle. A key is a namespace.
func New(config Config) reconcile.Controller[View] {
	bundle := string(config.RootCA)
	return reconcile.Controller[View]{
		Name:     Name,
		Aliases:  []string{"root-ca-cert-publisher"},
		Identity: "root-ca-cert-publisher",
		Queue:    "root_ca_cert_publisher",
		Owns:     &kinds.Namespaces.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Namespaces.Kind, Keys: appeared},
			{Kind: kinds.ConfigMaps.Kind, Keys: touched, Named: []string{configMap}},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.ConfigMaps.Name, On: reconcile.Within, Named: []string{configMap}, Fields: []string{".data['" + certificate + "']", ".metadata.annotations['" + annotation + "']"}},
			{Verb: events.VerbUpdate, Kind: kinds.ConfigMaps.Name, On: reconcile.Within, Named: []string{configMap}, Fields: []string{".data['" + certificate + "']", ".metadata", ".binaryData", ".immutable"}},
		},
		Settings: reconcile.Body(config),
		Observe:  func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, bundle) },
		Decide:   decide,
	}
}

// View is what the turn of one namespace can see.
type View struct {
	Namespace string `json:"namespace"`
	// Bundle is the bundle to publish.
	Bundle string `json:"bundle"`
	// Published is the existing ConfigMap, nil if there is none.
	Published *corev1.ConfigMap `json:"published,omitempty"`
	// Terminating is true if the namespace is terminating and accepts no new
	// objects.
	Terminating bool `json:"terminating,omitempty"`
}

// appeared maps a namespace to itself if it is new, or changed while it is
// active.
func appeared(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		return nil
	}
	namespace, ok := now.Object.(*corev1.Namespace)
	if !ok || !was.None() && namespace.Status.Phase != corev1.NamespaceActive {
		return nil
	}
	return []events.Key{{Name: namespace.Name}}
}

// touched maps a published ConfigMap to its namespace.
func touched(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		now = was
	}
	if now.None() || now.GetName() != configMap {
		return nil
	}
	return []events.Key{{Name: now.GetNamespace()}}
}

func observe(s reconcile.Snapshot, k events.Key, bundle string) (View, bool) {
	namespace, ok := reconcile.Get(s, kinds.Namespaces, "", k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Namespace: k.Name, Bundle: bundle, Terminating: namespace.Status.Phase == corev1.NamespaceTerminating}
	if published, ok := reconcile.Get(s, kinds.ConfigMaps, k.Name, configMap); ok {
		v.Published = published
	}
	return v, true
}
