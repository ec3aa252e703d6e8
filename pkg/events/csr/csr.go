// Package csr has the rules of Kubernetes' built-in signers: which certificate requests they
// sign, and for which usages. The controller decides by these rules that a request should be
// signed, and the writer, which has the keys, checks the same rules before it signs, regardless
// of the turn.
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

// Signers are all signers.
func Signers() []string {
	return []string{KubeletServing, KubeletClient, KubeAPIServerClient, LegacyUnknown}
}

// Failure is the reason in the Failed condition of a request that breaks the rules of its
// signer.
//
// Upstream: pkg/controller/certificates/signer, handle.
const Failure = "SignerValidationFailure"

// Settled is the reason why no signer should sign a request in its current state; empty if a
// signer should sign it.
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

// Read parses a certificate request in PEM.
//
// Errors: the text is no certificate request.
//
// Upstream: pkg/apis/certificates, ParseCSR.
func Read(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("it is no certificate request in PEM")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// The subject of a kubelet's certificate.
const (
	nodes = "system:nodes"
	node  = "system:node:"
)

// Violation is the rule of a signer that a request breaks, in the words of its condition; empty
// if it breaks none.
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

// Messages that two signers share.
const (
	noNodes = "subject organization is not system:nodes"
	noNode  = "subject common name does not begin with system:node:"
	noEmail = "Email subjectAltNames are not allowed"
	noURI   = "URI subjectAltNames are not allowed"
)

// serving checks a request for a kubelet's server certificate.
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

// client checks a request for a kubelet's client certificate.
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

// kubelets reports whether the usages are those of a kubelet's client or server certificate, and
// no others. Key encipherment is optional, because elliptic-curve keys cannot do it.
func kubelets(usages []certificatesv1.KeyUsage, as certificatesv1.KeyUsage) bool {
	return slices.Contains(usages, as) && slices.Contains(usages, certificatesv1.UsageDigitalSignature) &&
		!slices.ContainsFunc(usages, func(u certificatesv1.KeyUsage) bool {
			return u != as && u != certificatesv1.UsageDigitalSignature && u != certificatesv1.UsageKeyEncipherment
		})
}

// user checks a request for any client certificate: who may get which is for the approver to
// decide.
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
