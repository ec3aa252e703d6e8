package csr_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"reflect"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/millrace/millrace/pkg/events/csr"
)

const (
	client    = certificatesv1.UsageClientAuth
	server    = certificatesv1.UsageServerAuth
	signs     = certificatesv1.UsageDigitalSignature
	enciphers = certificatesv1.UsageKeyEncipherment
)

// asks is a kubelet's request, modified by change.
func asks(change func(*x509.CertificateRequest)) *x509.CertificateRequest {
	r := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	if change != nil {
		change(r)
	}
	return r
}

// Each signer has its rules, and names the broken one in the words of Kubernetes.
func TestViolations(t *testing.T) {
	host := func(r *x509.CertificateRequest) { r.DNSNames = []string{"n1"} }
	address := func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }
	mailbox := func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }
	uri := func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "n1"}} }
	both := func(a, b func(*x509.CertificateRequest)) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) { a(r); b(r) }
	}
	named := func(name string) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) { r.Subject.CommonName = name }
	}
	of := func(groups ...string) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) { r.Subject.Organization = groups }
	}
	usages := func(u ...certificatesv1.KeyUsage) []certificatesv1.KeyUsage { return u }
	for _, c := range []struct {
		signer string
		change func(*x509.CertificateRequest)
		usages []certificatesv1.KeyUsage
		want   string
	}{
		{csr.KubeletServing, host, usages(server, signs), ""},
		{csr.KubeletServing, both(host, address), usages(enciphers, signs, server, signs), ""},
		{csr.KubeletServing, address, usages(server, signs, enciphers), ""},
		{csr.KubeletServing, nil, usages(server, signs), "DNS or IP subjectAltName is required"},
		{csr.KubeletServing, both(host, mailbox), usages(server, signs), "Email subjectAltNames are not allowed"},
		{csr.KubeletServing, both(host, uri), usages(server, signs), "URI subjectAltNames are not allowed"},
		{csr.KubeletServing, host, usages(server), "usages did not match [digital signature key encipherment server auth]"},
		{csr.KubeletServing, host, usages(server, signs, client), "usages did not match [digital signature key encipherment server auth]"},
		{csr.KubeletServing, both(host, named("n1")), usages(server, signs), "subject common name does not begin with system:node:"},
		{csr.KubeletServing, both(host, of("system:nodes", "system:masters")), usages(server, signs), "subject organization is not system:nodes"},
		{csr.KubeletClient, nil, usages(client, signs), ""},
		{csr.KubeletClient, nil, usages(client, signs, enciphers), ""},
		{csr.KubeletClient, host, usages(client, signs), "DNS subjectAltNames are not allowed"},
		{csr.KubeletClient, address, usages(client, signs), "IP subjectAltNames are not allowed"},
		{csr.KubeletClient, mailbox, usages(client, signs), "Email subjectAltNames are not allowed"},
		{csr.KubeletClient, uri, usages(client, signs), "URI subjectAltNames are not allowed"},
		{csr.KubeletClient, of("system:masters", "system:nodes"), usages(client, signs), "subject organization is not system:nodes"},
		{csr.KubeletClient, of("system:masters"), usages(client, signs), "subject organization is not system:nodes"},
		{csr.KubeletClient, of(), usages(client, signs), "subject organization is not system:nodes"},
		{csr.KubeletClient, named("system:admin"), usages(client, signs), "subject common name does not begin with system:node:"},
		{csr.KubeletClient, nil, usages(client), "usages did not match [client auth digital signature key encipherment]"},
		{csr.KubeletClient, nil, usages(client, signs, server), "usages did not match [client auth digital signature key encipherment]"},
		{csr.KubeAPIServerClient, both(of("any"), both(host, uri)), usages(client), ""},
		{csr.KubeAPIServerClient, nil, usages(client, signs, enciphers), ""},
		{csr.KubeAPIServerClient, nil, usages(signs), "missing required usage for client certificate: client auth"},
		{csr.KubeAPIServerClient, nil, nil, "missing required usage for client certificate: client auth"},
		{csr.KubeAPIServerClient, nil, usages(client, server), "invalid usage for client certificate: server auth"},
		{csr.LegacyUnknown, of("any"), usages(server, "any"), ""},
		{"example.com/signer", nil, usages(client), "unrecognized signerName: example.com/signer"},
	} {
		if got := csr.Violation(c.signer, asks(c.change), c.usages); got != c.want {
			t.Errorf("%s for %v: %q, want %q", c.signer, c.usages, got, c.want)
		}
	}
}

// A request is signed only if it is approved and has not been answered.
func TestSettled(t *testing.T) {
	for want, kinds := range map[string][][]certificatesv1.CertificateSigningRequestCondition{
		"":                            {{{Type: "Approved", Status: "True"}}, {{Type: "Approved"}, {Type: "Failed", Status: "False"}}, {{Type: "Noted"}, {Type: "Approved", Status: "False"}}},
		"the request is not approved": {nil, {{Type: "Noted", Status: "True"}}, {{Type: "Failed", Status: "True"}}},
		"the request was denied":      {{{Type: "Approved"}, {Type: "Denied"}}, {{Type: "Denied", Status: "False"}}},
		"the request has failed":      {{{Type: "Approved"}, {Type: "Failed", Status: "True"}}, {{Type: "Failed"}, {Type: "Approved"}}},
	} {
		for _, conditions := range kinds {
			if got := csr.Settled(certificatesv1.CertificateSigningRequestStatus{Conditions: conditions}); got != want {
				t.Errorf("%v: %q, want %q", conditions, got, want)
			}
			if got := csr.Settled(certificatesv1.CertificateSigningRequestStatus{Conditions: conditions, Certificate: []byte("x")}); got == "" {
				t.Errorf("%v: what has a certificate is to be signed", conditions)
			}
		}
	}
}

func TestRead(t *testing.T) {
	der, err := x509.CreateCertificateRequest(rand.Reader, asks(nil), ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	if r, err := csr.Read(append([]byte("words\n"), block("CERTIFICATE REQUEST", der)...)); err != nil || r.Subject.CommonName != "system:node:n1" {
		t.Errorf("the request is read as %+v, %v; want that of system:node:n1", r, err)
	}
	for what, text := range map[string][]byte{
		"none": nil, "no PEM": []byte("x"), "of another kind": block("NEW CERTIFICATE REQUEST", der), "damaged": block("CERTIFICATE REQUEST", der[1:]),
	} {
		if r, err := csr.Read(text); err == nil {
			t.Errorf("%s: it is read as the request %+v", what, r)
		}
	}
}

func TestUsages(t *testing.T) {
	key, more, err := csr.Usages([]certificatesv1.KeyUsage{"s/mime", "client auth", "digital signature", "signing", "email protection", "server auth", "cert sign"})
	if want := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageEmailProtection}; err != nil || key != x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign || !slices.Equal(more, want) {
		t.Errorf("the usages are %v and %v, %v; want %v", key, more, err, want)
	}
	if key, more, err := csr.Usages(nil); err != nil || key != 0 || len(more) > 0 {
		t.Errorf("none are %v, %v, %v", key, more, err)
	}
	if _, _, err := csr.Usages([]certificatesv1.KeyUsage{"client auth", "flying"}); err == nil {
		t.Error("a certificate may be for flying")
	}
}

// The signers are those of Kubernetes, and no others.
func TestSigners(t *testing.T) {
	want := []string{"kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kube-apiserver-client", "kubernetes.io/legacy-unknown"}
	if !reflect.DeepEqual(csr.Signers(), want) {
		t.Errorf("the signers are %v, want those of Kubernetes", csr.Signers())
	}
	for _, signer := range csr.Signers() {
		if csr.Violation(signer, asks(nil), nil) == "unrecognized signerName: "+signer {
			t.Errorf("%s has no rules", signer)
		}
	}
}
