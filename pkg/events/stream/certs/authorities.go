package certs

import (
	"crypto/x509"
	"fmt"
	"os"
)

// ReadAuthorities reads the certificates of authorities from a PEM file.
//
// Errors: the file cannot be read, or holds no certificate.
func ReadAuthorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Authorities(text, file)
}

// Authorities are the certificates of authorities in a PEM text, which an error names.
//
// Errors: it holds no certificate.
func Authorities(text []byte, from string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", from)
	}
	return pool, nil
}
