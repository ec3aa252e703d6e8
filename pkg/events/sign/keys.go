package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The types of PEM blocks, and the headers of a public key.
const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"

	headerNotBefore = "Not-Before"
	headerNotAfter  = "Not-After"
	headerRevoked   = "Revoked"
	headerOf        = "Controllers"
)

// Key is a trusted public key with its validity. The time at which the bus stored a message
// decides whether the key was valid for it.
type Key struct {
	// ID names the key: the first eight bytes of its SHA-256, in hexadecimal digits.
	ID     string
	Public ed25519.PublicKey
	// NotBefore and NotAfter limit the validity; zero is no limit.
	NotBefore, NotAfter time.Time
	// Revoked is the time from which on no signature of the key counts, because it may be in
	// wrong hands; zero: not revoked.
	Revoked time.Time
	// Controllers are the controllers whose turns and outcomes it may sign; none: all.
	Controllers []string
}

// Generate makes a key pair: the private key as PKCS #8, and the public one for a trust
// file, valid from now on, both as PEM.
//
// Errors: the system has no randomness.
func Generate() (private, public []byte, err error) {
	return generate(time.Now())
}

func generate(now time.Time) (private, public []byte, err error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a signing key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a signing key: %w", err)
	}
	private = pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der})
	public, err = Key{Public: pub, NotBefore: now}.PEM()
	return private, public, err
}

// PEM is the key as a block of a trust file.
func (k Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(k.Public)
	if err != nil {
		return nil, fmt.Errorf("encode a public key: %w", err)
	}
	b := &pem.Block{Type: publicBlock, Bytes: der, Headers: map[string]string{}}
	for name, at := range map[string]time.Time{headerNotBefore: k.NotBefore, headerNotAfter: k.NotAfter, headerRevoked: k.Revoked} {
		if !at.IsZero() {
			b.Headers[name] = at.UTC().Format(time.RFC3339Nano) // messages from earlier in that second are history
		}
	}
	if len(k.Controllers) > 0 {
		b.Headers[headerOf] = strings.Join(k.Controllers, ",")
	}
	return pem.EncodeToMemory(b), nil
}

// ParsePrivate parses a private key.
//
// Errors: the text is not exactly one PKCS #8 Ed25519 key; the error does not repeat the text.
func ParsePrivate(text []byte) (ed25519.PrivateKey, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil || block.Type != privateBlock:
		return nil, fmt.Errorf("it holds no PEM block %q: it must be an Ed25519 key as PKCS #8, as millrace signing-keys makes it", privateBlock)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("it holds more than one private key: leave the one that is to sign")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is no private key as PKCS #8")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is a %T, not an Ed25519 key", parsed)
	}
	return key, nil
}

// ParseTrust parses a trust file: one or more public keys.
//
// Errors: the file contains no public key, or anything else.
func ParseTrust(text []byte) ([]Key, error) {
	var keys []Key
	seen := map[string]bool{}
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("after %d public keys there is something that is no PEM block", len(keys))
		}
		k, err := parsePublic(block)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d: %w", len(keys)+1, err)
		}
		if seen[k.ID] {
			return nil, fmt.Errorf("key %s is there twice", k.ID)
		}
		seen[k.ID] = true
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("it holds no PEM block %q", publicBlock)
	}
	return keys, nil
}

func parsePublic(block *pem.Block) (k Key, err error) {
	switch block.Type {
	case publicBlock:
	case privateBlock:
		return k, errors.New("it is a private key, which the signer alone may have: name the public one")
	default:
		return k, fmt.Errorf("it is a %q, not a %q", block.Type, publicBlock)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return k, fmt.Errorf("read a public key: %w", err)
	}
	var ok bool
	if k.Public, ok = parsed.(ed25519.PublicKey); !ok {
		return k, fmt.Errorf("it is a %T, not an Ed25519 key", parsed)
	}
	k.ID = idOf(k.Public)
	for name, text := range block.Headers {
		if name == headerOf {
			if k.Controllers, err = parseControllers(text); err != nil {
				return k, fmt.Errorf("header %s of key %s: %w", name, k.ID, err)
			}
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return k, fmt.Errorf("header %s of key %s: %w", name, k.ID, err)
		}
		switch name {
		case headerNotBefore:
			k.NotBefore = at
		case headerNotAfter:
			k.NotAfter = at
		case headerRevoked:
			k.Revoked = at
		default:
			return k, fmt.Errorf("key %s has a header %q, which is none of %s, %s, %s, %s", k.ID, name, headerNotBefore, headerNotAfter, headerRevoked, headerOf)
		}
	}
	return k, nil
}

// parseControllers parses names of controllers, separated by commas. An empty list is an error,
// because it would mean all controllers.
func parseControllers(text string) (names []string, err error) {
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || name == "" {
			return nil, fmt.Errorf("%q is not names of controllers with commas between them", cut(text))
		}
		names = append(names, name)
	}
	return names, nil
}

func idOf(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}
