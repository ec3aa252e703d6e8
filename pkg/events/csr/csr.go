// Package csr has the rules of the signers that Kubernetes has itself: which requests for
// certificates they sign, and what a certificate is then for. The controller decides by them
// that a request is to be signed, and the writer, which has the keys, judges by the same
// rules before it signs, whatever it was told.
package csr

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
)

// The signers.
const (
	KubeletServing      = certificatesv1.KubeletServingSignerName
	KubeletClient       = certificatesv1.KubeAPIServerClientKubeletSignerName
	KubeAPIServerClient = certificatesv1.KubeAPIServerClientSignerName
	LegacyUnknown       = certificatesv1beta1.LegacyUnknownSignerName
)

// Signers are all of them.
func Signers() []string {
	return []string{KubeletServing, KubeletClient, KubeAPIServerClient, LegacyUnknown}
}

// Failure is the reason of the condition of a request that breaks the rules of its signer.
//
// Upstream: pkg/controller/certificates/signer, handle.
const Failure = "SignerValidationFailure"

// Settled is why a request is not to be signed by any signer, as it stands; empty
// where it is to be signed.
//
// Upstream: pkg/controller/certificates, IsCertificateRequestApproved and HasTrueCondition.
func Settled(status certificatesv1.CertificateSigningRequestStatus) string {
	has := func(kind certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind })
	}
	failed := slices.ContainsFunc(status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateFailed && (c.Status == "" || c.Status == corev1.ConditionTrue)
	})
	switch {
	case len(status.Certificate) > 0:
		return "the request has its certificate"
	case has(certificatesv1.CertificateDenied):
		return "the request was denied"
	case !has(certificatesv1.CertificateApproved):
		return "the request is not approved"
	case failed:
		return "the request has failed"
	default:
		return ""
	}
}

// Read is what a request in PEM asks for.
//
// Errors: it cannot be read.
//
// Upstream: pkg/apis/certificates, ParseCSR.
func Read(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("it is no certificate request in PEM")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// What the certificate of a kubelet says of it.
const (
	nodes = "system:nodes"
	node  = "system:node:"
)

// Violation is the rule of a signer that a request breaks, in the words of its condition;
// empty where it breaks none.
//
// Upstream: pkg/controller/certificates/signer, getCSRVerificationFuncForSignerName. The words
// are read by users, so they are the same to the letter.
func Violation(signer string, asked *x509.CertificateRequest, usages []certificatesv1.KeyUsage) string {
	switch signer {
	case KubeletServing:
		return serving(asked, usages)
	case KubeletClient:
		return client(asked, usages)
	case KubeAPIServerClient:
		return user(usages)
	case LegacyUnknown:
		return ""
	default:
		return "unrecognized signerName: " + signer
	}
}

// The words of rules that two signers have.
const (
	noNodes = "subject organization is not system:nodes"
	noNode  = "subject common name does not begin with system:node:"
	noEmail = "Email subjectAltNames are not allowed"
	noURI   = "URI subjectAltNames are not allowed"
)

// serving is for the server that a kubelet is.
//
// Upstream: pkg/apis/certificates, ValidateKubeletServingCSR.
func serving(asked *x509.CertificateRequest, usages []certificatesv1.KeyUsage) string {
	switch {
	case !slices.Equal(asked.Subject.Organization, []string{nodes}):
		return noNodes
	case len(asked.DNSNames) == 0 && len(asked.IPAddresses) == 0:
		return "DNS or IP subjectAltName is required"
	case len(asked.EmailAddresses) > 0:
		return noEmail
	case len(asked.URIs) > 0:
		return noURI
	case !kubelets(usages, certificatesv1.UsageServerAuth):
		return "usages did not match [digital signature key encipherment server auth]"
	case !strings.HasPrefix(asked.Subject.CommonName, node):
		return noNode
	default:
		return ""
	}
}

// client is for the client of the API server that a kubelet is.
//
// Upstream: pkg/apis/certificates, ValidateKubeletClientCSR.
func client(asked *x509.CertificateRequest, usages []certificatesv1.KeyUsage) string {
	switch {
	case !slices.Equal(asked.Subject.Organization, []string{nodes}):
		return noNodes
	case len(asked.DNSNames) > 0:
		return "DNS subjectAltNames are not allowed"
	case len(asked.EmailAddresses) > 0:
		return noEmail
	case len(asked.IPAddresses) > 0:
		return "IP subjectAltNames are not allowed"
	case len(asked.URIs) > 0:
		return noURI
	case !strings.HasPrefix(asked.Subject.CommonName, node):
		return noNode
	case !kubelets(usages, certificatesv1.UsageClientAuth):
		return "usages did not match [client auth digital signature key encipherment]"
	default:
		return ""
	}
}

// kubelets tells whether usages are what a kubelet needs to be a client or a server, and
// nothing else. A key of elliptic curves enciphers no other keys.
func kubelets(usages []certificatesv1.KeyUsage, as certificatesv1.KeyUsage) bool {
	return slices.Contains(usages, as) && slices.Contains(usages, certificatesv1.UsageDigitalSignature) &&
		!slices.ContainsFunc(usages, func(u certificatesv1.KeyUsage) bool {
			return u != as && u != certificatesv1.UsageDigitalSignature && u != certificatesv1.UsageKeyEncipherment
		})
}

// user is for any client of the API server: who may be which is for the approval to say.
//
// Upstream: pkg/controller/certificates/signer, validAPIServerClientUsages.
func user(usages []certificatesv1.KeyUsage) string {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return "invalid usage for client certificate: " + string(u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return "missing required usage for client certificate: client auth"
	}
	return ""
}
