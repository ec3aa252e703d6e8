package csrapproving

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/millrace/millrace/pkg/events/csr"
)

// nodeOf is the name under which a request asks for the client certificate of a node; ok is
// false where it asks for anything else, or more: its signer would refuse that.
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
