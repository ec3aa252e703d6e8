// Package csrsigning has approved certificate requests signed for Kubernetes' own signers:
// kubernetes.io/kubelet-serving, kubernetes.io/kube-apiserver-client-kubelet,
// kubernetes.io/kube-apiserver-client and kubernetes.io/legacy-unknown.
//
// The writer signs, because only it has the keys. This controller decides only that a request must
// be answered now, and as which signer. The writer reads the request live, checks it against the
// same rules (package csr), and writes either its certificate or that it has failed. So the writer
// signs no request that has changed meanwhile or that is not approved, whatever this controller decides.
package csrsigning

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config configures the controller.
type Config struct {
	// Signers are the signers whose keys the writer has. Without any, the controller must not run.
	Signers []string `json:"signers"`
}

// New returns the controller. A key is a request.
func New(config Config) reconcile.Controller[View] {
	return reconcile.Controller[View]{
		Name:     "certificatesigningrequest-signing-controller",
		Aliases:  []string{"csrsigning"},
		Identity: "certificate-controller",
		Queue:    "certificate",
		Owns:     &kinds.CertificateSigningRequests.Kind,
		Inputs:   []reconcile.Input{reconcile.Own(kinds.CertificateSigningRequests.Kind)},
		Writes: reconcile.Writes{{
			Verb: events.VerbPatch, Kind: kinds.CertificateSigningRequests.Name, Subresource: query.SubCertificate, On: reconcile.Itself, Unchanged: true,
			How: []types.PatchType{types.MergePatchType}, Fields: []string{signerName},
			Values: []reconcile.Value{{Path: signerName, One: csr.Signers()}},
			Copies: []reconcile.Copy{{To: signerName, From: signerName}},
		}},
		Settings: reconcile.Body(config),
		Observe:  func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, config.Signers) },
		Decide:   decide,
	}
}

// signerName is the path of the signer's name in a request.
const signerName = ".spec.signerName"

// View is the input of the turn of one request.
type View struct {
	Request *certificatesv1.CertificateSigningRequest `json:"request"`
	// Signs is true if the writer has the key of the request's signer.
	Signs bool `json:"signs,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key, signers []string) (View, bool) {
	request, ok := reconcile.Get(s, kinds.CertificateSigningRequests, "", k.Name)
	if !ok {
		return View{}, false
	}
	return View{Request: request, Signs: slices.Contains(signers, request.Spec.SignerName)}, true
}
