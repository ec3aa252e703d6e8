// Package csrsigning has requests for certificates signed once they are approved, for the
// signers that Kubernetes has itself: kubernetes.io/kubelet-serving,
// kubernetes.io/kube-apiserver-client-kubelet, kubernetes.io/kube-apiserver-client and
// kubernetes.io/legacy-unknown.
//
// Who signs is the writer, which alone has the keys: here it is decided no more than that a
// request is to be answered now, as which signer. The writer looks at the request live, holds
// it against the same rules (package csr), and writes either its certificate or that it has
// failed. So a request that changed meanwhile is not signed, and neither is one that is not
// approved, whatever is decided here.
package csrsigning

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config is what the controller needs to know.
type Config struct {
	// Signers are those whose keys the writer has. Without any, the controller must not be
	// run.
	Signers []string `json:"signers"`
}

// New makes the controller. A key is a request.
func New(config Config) reconcile.Controller[View] {
	return reconcile.Controller[View]{
		Name:     "certificatesigningrequest-signing-controller",
		Aliases:  []string{"csrsigning"},
		Identity: "certificate-controller",
		Queue:    "certificate",
		Owns:     &kinds.CertificateSigningRequests.Kind,
		Inputs:   []reconcile.Input{reconcile.Own(kinds.CertificateSigningRequests.Kind)},
		Writes: reconcile.Writes{{
			Verb: events.VerbPatch, Kind: kinds.CertificateSigningRequests.Name, Subresource: events.SubCertificate, On: reconcile.Itself, Unchanged: true,
			How: []types.PatchType{types.MergePatchType}, Fields: []string{signerName},
			Values: []reconcile.Value{{Path: signerName, One: csr.Signers()}},
			Copies: []reconcile.Copy{{To: signerName, From: signerName}},
		}},
		Settings: reconcile.Body(config),
		Observe:  func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, config.Signers) },
		Decide:   decide,
	}
}

// signerName is where a request says whose certificate it asks for.
const signerName = ".spec.signerName"

// View is what the turn of one request can see.
type View struct {
	Request *certificatesv1.CertificateSigningRequest `json:"request"`
	// Signs is true where the writer has the key of its signer.
	Signs bool `json:"signs,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key, signers []string) (View, bool) {
	request, ok := reconcile.Get(s, kinds.CertificateSigningRequests, "", k.Name)
	if !ok {
		return View{}, false
	}
	return View{Request: request, Signs: slices.Contains(signers, request.Spec.SignerName)}, true
}
