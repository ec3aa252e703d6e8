package controllerflags

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// authorityOf is a certificate of a new authority in PEM, and its key.
func authorityOf(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	ca, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// Only certificates are published in every namespace and recorded: with any other file nothing
// starts, and the error says what kind of content the file has.
func TestTheRootCertificate(t *testing.T) {
	certificate, key := authorityOf(t)
	block, _ := pem.Decode(certificate)
	comment := "# the cluster's authority\n"
	for _, c := range []struct {
		what string
		file []byte
		want string // "": it is taken
	}{
		{"a certificate", certificate, ""},
		{"two, with comments", []byte(comment + string(certificate) + comment + string(certificate)), ""},
		{"a private key", key, "a private key (EC PRIVATE KEY)"},
		{"a certificate and its key", slices.Concat(certificate, key), "a private key (EC PRIVATE KEY)"},
		{"a key that is cut off", slices.Concat(certificate, key[:len(key)/2]), "cut off"},
		{"a certificate that is cut off", certificate[:len(certificate)/2], "cut off"},
		{"a second one that is cut off", slices.Concat(certificate, certificate[:len(certificate)-40]), "cut off"},
		{"DER", block.Bytes, "openssl x509 -inform der"},
		{"nothing", nil, "empty"},
		{"text", []byte("canary"), "no certificate in PEM"},
		{"another block", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: block.Bytes}), "PUBLIC KEY"},
		{"no certificate in a block of one", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("canary")}), "cannot be read"},
	} {
		o := New()
		o.RootCAFile = filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(o.RootCAFile, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := o.Config()
		switch {
		case c.want == "" && (err != nil || string(config.RootCA) != string(c.file)):
			t.Errorf("%s: %q, %v", c.what, config.RootCA, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--root-ca-file "+o.RootCAFile)):
			t.Errorf("%s: %v, want an error with %q", c.what, err, c.want)
		case c.want != "" && (len(config.RootCA) > 0 || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), base64.StdEncoding.EncodeToString(block.Bytes)[:20])):
			t.Errorf("%s: %v repeats what is in the file, or it is used: %q", c.what, err, config.RootCA)
		}
	}
}

// Without a file the root certificate is the kubeconfig's certificate-authority. An empty device,
// which a container gets in place of a file, counts as no file.
func TestTheRootCertificateOfTheKubeconfig(t *testing.T) {
	certificate, key := authorityOf(t)
	other, _ := authorityOf(t)
	named := filepath.Join(t.TempDir(), "other.crt")
	if err := os.WriteFile(named, other, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, file string
		cluster    rest.TLSClientConfig
		want       string
		fails      string
	}{
		{what: "its text", cluster: rest.TLSClientConfig{CAData: certificate}, want: string(certificate)},
		{what: "its file", cluster: rest.TLSClientConfig{CAFile: named}, want: string(other)},
		{what: "a flag", file: named, cluster: rest.TLSClientConfig{CAData: certificate}, want: string(other)},
		{what: "no file in a container", file: os.DevNull, cluster: rest.TLSClientConfig{CAData: certificate}, want: string(certificate)},
		{what: "the system's", cluster: rest.TLSClientConfig{}},
		{what: "a key", cluster: rest.TLSClientConfig{CAData: slices.Concat(certificate, key)}, fails: "certificate-authority"},
		{what: "a file that is not there", cluster: rest.TLSClientConfig{CAFile: named + "x"}, fails: "certificate-authority"},
	} {
		o := New()
		o.RootCAFile = c.file
		err := o.Trust(&rest.Config{TLSClientConfig: c.cluster})
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || !strings.Contains(err.Error(), "--root-ca-file") {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		config, failed := o.Config()
		if err != nil || failed != nil || string(config.RootCA) != c.want {
			t.Errorf("%s: %q, %v, %v", c.what, config.RootCA, err, failed)
		}
	}
}
