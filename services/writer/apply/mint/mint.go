// Package mint signs the service account tokens that live in Secrets, as kube-controller-manager
// does: they name the account and the Secret, are valid for every audience, and do not expire. The
// API server accepts them while both exist.
//
// A process that has the key can impersonate any service account. So no other package has the key,
// and this one keeps none of the tokens.
package mint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/keyutil"
)

// issuer is the issuer of the tokens.
//
// Upstream: pkg/serviceaccount, LegacyIssuer.
const issuer = "kubernetes/serviceaccount"

// Mint signs tokens. It is safe for concurrent use.
type Mint struct {
	signer jose.Signer
	rootCA []byte
}

// Subject is the account of a token, and the Secret that the token is for.
type Subject struct {
	Namespace, Account string
	UID                types.UID
	Secret             string
}

// claims are what the API server reads besides the issuer and the subject.
//
// Upstream: pkg/serviceaccount, legacyPrivateClaims.
type claims struct {
	Account   string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID       types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
	Secret    string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Namespace string    `json:"kubernetes.io/serviceaccount/namespace"`
}

// New makes a mint from a private key in PEM, RSA or ECDSA (PKCS#1, PKCS#8 or SEC 1), and from the
// root certificate, in PEM, that goes with each token; an empty one goes with none.
//
// Errors: the text has no such key, or its curve is not P-256, P-384 or P-521. The errors do not
// repeat the text.
func New(key, rootCA []byte) (*Mint, error) {
	private, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, errors.New("read the key for tokens: it is no private key in PEM, RSA or ECDSA")
	}
	algorithm, public, err := methodOf(private)
	if err != nil {
		return nil, fmt.Errorf("read the key for tokens: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("encode the public key for tokens: %w", err)
	}
	digest := sha256.Sum256(der)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: &jose.JSONWebKey{
		Algorithm: string(algorithm), Key: private, KeyID: base64.RawURLEncoding.EncodeToString(digest[:]), Use: "sig",
	}}, nil)
	if err != nil {
		return nil, fmt.Errorf("sign tokens with the key: %w", err)
	}
	return &Mint{signer: signer, rootCA: rootCA}, nil
}

// methodOf returns the signature algorithm of a key, and its public part.
func methodOf(private any) (jose.SignatureAlgorithm, any, error) {
	switch key := private.(type) {
	case *rsa.PrivateKey:
		return jose.RS256, &key.PublicKey, nil
	case *ecdsa.PrivateKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, &key.PublicKey, nil
		case elliptic.P384():
			return jose.ES384, &key.PublicKey, nil
		case elliptic.P521():
			return jose.ES512, &key.PublicKey, nil
		default:
			return "", nil, fmt.Errorf("its curve is %s, not P-256, P-384 or P-521", key.Curve.Params().Name)
		}
	default:
		return "", nil, fmt.Errorf("it is a %T, neither RSA nor ECDSA", private)
	}
}

// RootCA returns the root certificate that goes with each token; empty if none does.
func (m *Mint) RootCA() []byte { return m.rootCA }

// Token makes a token.
//
// Errors: the key does not sign.
func (m *Mint) Token(s Subject) (string, error) {
	token, err := jwt.Signed(m.signer).
		Claims(claims{Account: s.Account, UID: s.UID, Secret: s.Secret, Namespace: s.Namespace}).
		Claims(jwt.Claims{Issuer: issuer, Subject: "system:serviceaccount:" + s.Namespace + ":" + s.Account}).
		Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return token, nil
}
