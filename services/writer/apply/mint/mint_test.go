package mint_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/millrace/millrace/services/writer/apply/mint"
)

var subject = mint.Subject{Namespace: "shop", Account: "builder", UID: "b", Secret: "key"}

func block(t *testing.T, kind string) func(der []byte, err error) []byte {
	return func(der []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
}

// A token has the claims of kube-controller-manager's, and is signed as the key can.
func TestTokens(t *testing.T) {
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]crypto.Signer{"RS256": old}
	for name, curve := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		if keys[name], err = ecdsa.GenerateKey(curve, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	for algorithm, key := range keys {
		texts := map[string][]byte{"PKCS#8": block(t, "PRIVATE KEY")(x509.MarshalPKCS8PrivateKey(key))}
		switch k := key.(type) {
		case *rsa.PrivateKey:
			texts["PKCS#1"] = block(t, "RSA PRIVATE KEY")(x509.MarshalPKCS1PrivateKey(k), nil)
		case *ecdsa.PrivateKey:
			texts["SEC 1"] = block(t, "EC PRIVATE KEY")(x509.MarshalECPrivateKey(k))
		}
		for form, text := range texts {
			m, err := mint.New(text, []byte("ca"))
			if err != nil {
				t.Fatalf("%s, %s: %v", algorithm, form, err)
			}
			token, err := m.Token(subject)
			if err != nil || string(m.RootCA()) != "ca" {
				t.Fatalf("%s, %s: %v, %q", algorithm, form, err, m.RootCA())
			}
			holds(t, algorithm+", "+form, token, algorithm, key)
		}
	}
}

func holds(t *testing.T, what, token, algorithm string, key crypto.Signer) {
	t.Helper()
	signed, err := jose.ParseSigned(token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(algorithm)})
	if err != nil {
		t.Fatalf("%s: parse the token: %v", what, err)
	}
	payload, err := signed.Verify(key.Public())
	if err != nil {
		t.Fatalf("%s: verify the token's signature: %v", what, err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(der)
	header, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]map[string]any{
		string(payload): {
			"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:shop:builder",
			"kubernetes.io/serviceaccount/namespace": "shop", "kubernetes.io/serviceaccount/secret.name": "key",
			"kubernetes.io/serviceaccount/service-account.name": "builder", "kubernetes.io/serviceaccount/service-account.uid": "b",
		},
		string(header): {"alg": algorithm, "kid": base64.RawURLEncoding.EncodeToString(digest[:])},
	} {
		var got map[string]any
		if err := json.Unmarshal([]byte(text), &got); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: the token has %s (%v), want %v", what, text, err, want)
		}
	}
}

// A text that is no key is refused without being repeated.
func TestBadKeys(t *testing.T) {
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string][]byte{
		"neither RSA nor ECDSA":       block(t, "PRIVATE KEY")(x509.MarshalPKCS8PrivateKey(edwards)),
		"no private key in PEM":       []byte("canary-key"),
		"it is no private key in PEM": block(t, "RSA PRIVATE KEY")([]byte("canary-key"), nil),
		"its curve is P-224":          block(t, "EC PRIVATE KEY")(x509.MarshalECPrivateKey(small)),
	} {
		if _, err := mint.New(text, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// A key that is too weak to sign gives an error and no token.
func TestAWeakKeyMakesNoToken(t *testing.T) {
	var weak []byte
	t.Run("the key", func(t *testing.T) {
		t.Setenv("GODEBUG", "rsa1024min=0")
		key, err := rsa.GenerateKey(rand.Reader, 512)
		if err != nil {
			t.Fatal(err)
		}
		weak = block(t, "RSA PRIVATE KEY")(x509.MarshalPKCS1PrivateKey(key), nil)
	})
	m, err := mint.New(weak, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token, err := m.Token(subject); err == nil || !strings.Contains(err.Error(), "sign a token") || token != "" {
		t.Errorf("a token of %d bytes, %v", len(token), err)
	}
}
