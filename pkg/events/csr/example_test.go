package csr_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/millrace/millrace/pkg/events/csr"
)

// A signer refuses a request that breaks one of its rules, with the rule as the reason.
func ExampleViolation() {
	asked := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "mallory", Organization: []string{"system:nodes"}}}
	fmt.Println(csr.Violation(certificatesv1.KubeletServingSignerName, asked, nil) != "")
	// Output: true
}
