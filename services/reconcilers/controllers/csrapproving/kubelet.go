package csrapproving

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// What the certificate of a kubelet says of it.
const (
	nodes = "system:nodes"
	node  = "system:node:"
)

// usages are what a kubelet's client certificate is for. A key of elliptic curves enciphers
// no other keys.
var usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}

// nodeOf is the name under which a request asks for the client certificate of a node; ok is
// false where it asks for anything else, or more.
//
// Upstream: pkg/apis/certificates, ValidateKubeletClientCSR.
func nodeOf(r *certificatesv1.CertificateSigningRequest) (name string, ok bool) {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || !fits(r.Spec.Usages) {
		return "", false
	}
	asked := read(r.Spec.Request)
	if asked == nil || !slices.Equal(asked.Subject.Organization, []string{nodes}) || !strings.HasPrefix(asked.Subject.CommonName, node) {
		return "", false
	}
	others := len(asked.DNSNames) + len(asked.EmailAddresses) + len(asked.IPAddresses) + len(asked.URIs)
	return asked.Subject.CommonName, others == 0
}

// fits tells whether a certificate is to be for all that a kubelet needs, and nothing else.
func fits(asked []certificatesv1.KeyUsage) bool {
	for _, needed := range usages[:2] {
		if !slices.Contains(asked, needed) {
			return false
		}
	}
	return !slices.ContainsFunc(asked, func(u certificatesv1.KeyUsage) bool { return !slices.Contains(usages, u) })
}

// read is what a request in PEM asks for; nil where it cannot be read.
func read(text []byte) *x509.CertificateRequest {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil
	}
	return asked
}
