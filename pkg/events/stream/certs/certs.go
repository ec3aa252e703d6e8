// Package certs makes the certificates of a bus: an authority, and the certificates that it
// signs.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"time"
)

// Pair is a certificate and its key, both as PEM.
type Pair struct{ Certificate, Key []byte }

// NewAuthority makes an authority whose certificate is valid for the given time.
func NewAuthority(name string, valid time.Duration) (Pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return issue(template, nil, valid)
}

// Issue makes a certificate for a server with its host names and addresses. The certificate is
// valid for a client too, since the servers of a cluster are clients of each other; without
// hosts it is valid for a client only.
//
// Errors: the Pair is not an authority.
func (p Pair) Issue(name string, hosts []string, valid time.Duration) (Pair, error) {
	authority, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("read the authority: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return issue(template, &authority, valid)
}

// issue signs with an authority, or with the new key if there is none. The library chooses the
// serial number.
func issue(template *x509.Certificate, authority *tls.Certificate, valid time.Duration) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	// Clocks may differ by some minutes.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(valid)
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("sign a certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("write a key: %w", err)
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}
