// Package authority signs certificates for Kubernetes' own signers, as kube-controller-manager
// does.
//
// A process that has a signer's key can be any subject of the signer: with that of the signer of
// client certificates, any user and group. So no other package has the keys, and this one judges
// each request itself: it signs no request that is not approved or breaks the rules of its signer,
// whatever the caller.
package authority

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/millrace/millrace/pkg/events/csr"
)

// Longest is the default maximum validity of a certificate.
//
// Upstream: --cluster-signing-duration.
const Longest = 365 * 24 * time.Hour

const (
	// backdated is how far before its signing a certificate begins to be valid, because clocks
	// differ.
	backdated = 5 * time.Minute
	// shortest is the minimum validity of a certificate, however short the request wants it. It is
	// longer than backdated.
	shortest = 10 * time.Minute
	// Certificates shorter than short end as requested; all others end earlier by backdated.
	short = 8 * time.Hour
)

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	signers map[string]*pair
	longest time.Duration
}

// Files are the paths of a signer's certificate and key.
type Files struct{ Certificate, Key string }

// New makes an authority from the files of each signer. It reads changed files again. No
// certificate is valid for longer than longest; 0 means [Longest].
//
// Errors: a signer is not one of Kubernetes'; files cannot be read, are not a certificate and its
// key, or have several certificates. The errors do not repeat the content of the files.
func New(signers map[string]Files, longest time.Duration) (*Authority, error) {
	if longest == 0 {
		longest = Longest
	}
	a := &Authority{signers: map[string]*pair{}, longest: longest}
	for _, signer := range csr.Signers() {
		files, ok := signers[signer]
		if !ok {
			continue
		}
		p, err := open(files)
		if err != nil {
			return nil, fmt.Errorf("read the key of the signer %s: %w", signer, err)
		}
		a.signers[signer] = p
	}
	if len(a.signers) != len(signers) {
		return nil, errors.New("read the keys of signers: one of them is no signer of Kubernetes' own")
	}
	return a, nil
}

// ErrNoKey is returned for a signer whose key this process does not have.
var ErrNoKey = errors.New("this writer has no key of that signer: give it --cluster-signing-cert-file and --cluster-signing-key-file, or those of the one signer")

// ErrSettled is returned for a request that is not approved, or was answered before.
var ErrSettled = errors.New("the request is not to be signed")

// Violation is a rule of its signer that a request breaks. The authority never signs such a
// request.
type Violation string

func (v Violation) Error() string { return string(v) }

// Certify returns the certificate that a request asks for, in PEM.
//
// Errors: [ErrNoKey], [ErrSettled], a [Violation]; the request cannot be read or is not signed
// with its own key, the files have become unusable, or the signer's own certificate has
// expired.
//
// Upstream: pkg/controller/certificates/signer, handle and sign.
func (a *Authority) Certify(request *certificatesv1.CertificateSigningRequest, now time.Time) ([]byte, error) {
	key, ok := a.signers[request.Spec.SignerName]
	if !ok {
		return nil, ErrNoKey
	}
	if settled := csr.Settled(request.Status); settled != "" {
		return nil, fmt.Errorf("%w: %s", ErrSettled, settled)
	}
	asked, err := csr.Read(request.Spec.Request)
	if err != nil {
		return nil, fmt.Errorf("read what is asked for: %w", err)
	}
	if broken := csr.Violation(request.Spec.SignerName, asked, request.Spec.Usages); broken != "" {
		return nil, Violation(broken)
	}
	if err := asked.CheckSignature(); err != nil {
		return nil, fmt.Errorf("check that the request is signed with its own key: %w", err)
	}
	template, err := a.template(asked, request.Spec, now)
	if err != nil {
		return nil, err
	}
	return key.sign(template, now)
}

// template returns the certificate before it is signed: the subject, names and key of the request,
// for the usages that it names. It omits the extensions that the request asks for.
//
// Upstream: pkg/controller/certificates/authority, Sign and PermissiveSigningPolicy.
func (a *Authority) template(asked *x509.CertificateRequest, spec certificatesv1.CertificateSigningRequestSpec, now time.Time) (*x509.Certificate, error) {
	key, extended, err := csr.Usages(spec.Usages)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	lasts := a.duration(spec.ExpirationSeconds)
	if lasts >= short {
		lasts -= backdated
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: asked.Subject,
		DNSNames: asked.DNSNames, IPAddresses: asked.IPAddresses, EmailAddresses: asked.EmailAddresses, URIs: asked.URIs,
		PublicKeyAlgorithm: asked.PublicKeyAlgorithm, PublicKey: asked.PublicKey,
		KeyUsage: key, ExtKeyUsage: extended, BasicConstraintsValid: true,
		NotBefore: now.Add(-backdated), NotAfter: now.Add(lasts),
	}, nil
}

// duration returns the validity of a certificate.
//
// Upstream: pkg/controller/certificates/signer, duration.
func (a *Authority) duration(seconds *int32) time.Duration {
	if seconds == nil {
		return a.longest
	}
	switch asked := time.Duration(*seconds) * time.Second; {
	case asked > a.longest:
		return a.longest
	case asked < shortest:
		return shortest
	default:
		return asked
	}
}

// sign signs a template. The certificate ends with the signer's own at the latest.
func (p *pair) sign(template *x509.Certificate, now time.Time) ([]byte, error) {
	own, key, err := p.current()
	if err != nil {
		return nil, err
	}
	if !now.Before(own.NotAfter) {
		return nil, fmt.Errorf("sign a certificate: that of the signer has expired at %v", own.NotAfter.UTC().Format(time.RFC3339))
	}
	if template.NotAfter.After(own.NotAfter) {
		template.NotAfter = own.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, own, template.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
