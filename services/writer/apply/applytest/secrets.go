package applytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/authority"
	"github.com/millrace/millrace/services/writer/apply/mint"
)

// Where the Secrets of tests are, and what is in them.
const (
	AccountPath     = "/api/v1/namespaces/ns/serviceaccounts/builder"
	SecretPath      = "/api/v1/namespaces/ns/secrets/key"
	NameKey, UIDKey = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
	TokenType       = "kubernetes.io/service-account-token"
	BootstrapPath   = "/api/v1/namespaces/kube-system/secrets/"
	BootstrapType   = "bootstrap.kubernetes.io/token"
	InfoPath        = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	// Canary is in every Secret here, and must be nowhere else.
	Canary = "canary-5Jw1-never-told"
)

// Minting gives a door a key for tokens, and the root certificate "ca".
func Minting(t *testing.T) func(*apply.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mint.New(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), []byte("ca"))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *apply.Config) { c.Mint, c.Patience = m, 2*time.Second }
}

// Certifying lets a door sign for the kubelets' signers.
func Certifying(t *testing.T) func(*apply.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(100 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := authority.Files{Certificate: filepath.Join(t.TempDir(), "ca.crt"), Key: filepath.Join(t.TempDir(), "ca.key")}
	for file, block := range map[string]*pem.Block{files.Certificate: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := authority.New(map[string]authority.Files{csr.KubeletClient: files, csr.KubeletServing: files}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *apply.Config) { c.Authority, c.Patience = a, 2*time.Second }
}

// Noon is the time of the clock that AtNoon gives a door. The clock stands still.
var Noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// AtNoon gives a door a stopped clock.
func AtNoon(c *apply.Config) { c.Clock = clocktesting.NewFakePassiveClock(Noon) }

// Encoded returns a text as it is in a Secret.
func Encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// Keep stores a Secret of a type, with some content, and the account that it names.
func Keep(s *apiservertest.Server, kind string, holds map[string]string) (version string) {
	data := map[string]any{"mine": Encoded(Canary)}
	for name, value := range holds {
		data[name] = Encoded(value)
	}
	s.Put(AccountPath, "b", map[string]any{"metadata": map[string]any{"name": "builder", "namespace": "ns"}})
	return s.Put(SecretPath, "k", map[string]any{"type": kind, "data": data, "metadata": map[string]any{
		"name": "key", "namespace": "ns", "annotations": map[string]any{NameKey: "builder", UIDKey: "b"},
	}})
}

// KeepInfo stores the ConfigMap cluster-info.
func KeepInfo(s *apiservertest.Server, data map[string]string) (version string) {
	held := map[string]any{}
	for key, value := range data {
		held[key] = value
	}
	return s.Put(InfoPath, "c", map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": held, "unheardOf": map[string]any{"n": 12345678901234567},
		"metadata": map[string]any{"name": "cluster-info", "namespace": "kube-public", "labels": map[string]any{"l": "v"}},
	})
}

// KeepBootstrap stores a bootstrap token, or another Secret that looks like one.
func KeepBootstrap(s *apiservertest.Server, name, kind string, holds map[string]string) (version string) {
	data := map[string]any{"mine": Encoded(Canary)}
	for key, value := range holds {
		data[key] = Encoded(value)
	}
	return s.Put(BootstrapPath+name, "uid-"+name, map[string]any{"type": kind, "data": data, "metadata": map[string]any{"name": name, "namespace": "kube-system"}})
}

// KeepSigner stores a bootstrap token that signs, or what change makes of it.
func KeepSigner(s *apiservertest.Server, id, secret string, change map[string]string) {
	holds := map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-signing": "true"}
	maps.Copy(holds, change)
	kind := BootstrapType
	if holds["type"] != "" {
		kind = holds["type"]
	}
	KeepBootstrap(s, "bootstrap-token-"+id, kind, holds)
}

// A content of cluster-info, and the secret of a token: package credentials' tests know the
// signature that upstream makes of them.
const (
	GoldenKey  = "0123456789abcdef"
	GoldenInfo = "kubeconfig-content"
)
