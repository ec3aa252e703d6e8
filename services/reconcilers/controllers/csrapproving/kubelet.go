package csrapproving

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/millrace/millrace/pkg/events/csr"
)

// nodeOf returns the name of the node whose client certificate a request asks for; ok is false if
// it asks for anything else, or more, which its signer would refuse.
//
// Upstream: pkg/apis/certificates, ValidateKubeletClientCSR.
func nodeOf(r *certificatesv1.CertificateSigningRequest) (name string, ok bool) {
	if r.Spec.SignerName != csr.KubeletClient {
		return "", false
	}
	asked, err := csr.Read(r.Spec.Request)
	if err != nil || csr.Violation(csr.KubeletClient, asked, r.Spec.Usages) != "" {
		return "", false
	}
	return asked.Subject.CommonName, true
}
