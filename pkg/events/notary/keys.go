package notary

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events/sign"
)

// Generate makes a notary's private key, and its public key, valid from now on, in the form that
// [Keys.Read] reads. The name tells people whose key it is, such as notary.prod.example.com; it
// may contain neither a space nor "+".
func Generate(name string) (private, public string, err error) {
	failed := func(err error) (string, string, error) { return "", "", fmt.Errorf("make a key for %q: %w", name, err) }
	if private, _, err = note.GenerateKey(rand.Reader, name); err != nil {
		return failed(err)
	}
	if _, err := note.NewSigner(private); err != nil {
		return failed(errors.New(`a name may be neither empty nor hold a space or "+"`))
	}
	key, err := seed(private)
	if err != nil {
		return failed(err)
	}
	block, err := sign.Key{Public: key.Public().(ed25519.PublicKey), NotBefore: time.Now()}.PEM()
	if err != nil {
		return failed(err)
	}
	return private, "# " + name + "\n" + strings.TrimSpace(string(block)), nil
}

// Signer parses a private key, and derives its public key.
//
// Errors: the text is no private key; the error does not repeat it.
func Signer(private string) (note.Signer, note.Verifier, error) {
	private = strings.TrimSpace(private)
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, nil, errors.New("it is no private key of a notary: millrace notary keys makes one")
	}
	key, err := seed(private)
	if err != nil {
		return nil, nil, err
	}
	own, err := verifierOf(signer.Name(), sign.Key{Public: key.Public().(ed25519.PublicKey)})
	if err != nil {
		return nil, nil, fmt.Errorf("derive the public key: %w", err)
	}
	return signer, own, nil
}

// seed extracts the key from a private key's text: PRIVATE+KEY+<name>+<hash>+<algorithm and
// seed>.
func seed(private string) (ed25519.PrivateKey, error) {
	parts := strings.SplitN(private, "+", 5)
	text, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(text) != 1+ed25519.SeedSize {
		return nil, errors.New("it is a private key, but not an Ed25519 one")
	}
	return ed25519.NewKeyFromSeed(text[1:]), nil
}

// Keys are the public keys whose signatures are trusted, with their validity. The zero value
// trusts none.
type Keys struct {
	plain   []note.Verifier
	bounded []sign.Key
}

var _ note.Verifiers = (*Keys)(nil)

// Add trusts a key without time limits.
func (k *Keys) Add(key note.Verifier) { k.plain = append(k.plain, key) }

// Read trusts the keys in a file of public keys: either PEM blocks, whose headers limit when
// each key is valid, as [sign.ParseTrust] reads them; or lines with one key each, valid without
// limits, as older versions wrote them. Lines that begin with # are comments.
//
// Errors: the file contains no public key, or anything else.
func (k *Keys) Read(text string) error {
	if strings.Contains(text, "-----BEGIN ") {
		keys, err := sign.ParseTrust([]byte(text))
		if err != nil {
			return err
		}
		k.bounded = append(k.bounded, keys...)
		return nil
	}
	found := false
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.Contains(line, "PRIVATE+KEY+") { // anywhere: an error must not repeat it
			return errors.New("it holds a private key, which the notary alone may have: name the public one")
		}
		key, err := note.NewVerifier(line)
		if err != nil {
			return fmt.Errorf("%q is no public key of a notary: %w", line, err)
		}
		k.Add(key)
		found = true
	}
	if !found {
		return errors.New("it holds no public key")
	}
	return nil
}

// Empty reports whether no key is trusted.
func (k *Keys) Empty() bool { return len(k.plain)+len(k.bounded) == 0 }

// Verifier implements [note.Verifiers]. Keys in PEM blocks have no name and are trusted under
// any name.
func (k *Keys) Verifier(name string, hash uint32) (note.Verifier, error) {
	for _, key := range k.bounded {
		if v, err := verifierOf(name, key); err == nil && v.KeyHash() == hash {
			return v, nil
		}
	}
	return note.VerifierList(k.plain...).Verifier(name, hash)
}

func verifierOf(name string, key sign.Key) (note.Verifier, error) {
	text, err := note.NewEd25519VerifierKey(name, key.Public)
	if err != nil {
		return nil, err
	}
	return note.NewVerifier(text)
}

// counts reports whether the key of a signature is valid at all of the moments.
//
// Errors: [sign.ErrUnproven], which names the key.
func (k *Keys) counts(s note.Signature, at ...time.Time) error {
	for _, key := range k.bounded {
		if v, err := verifierOf(s.Name, key); err != nil || v.KeyHash() != s.Hash {
			continue
		}
		for _, moment := range at {
			if err := key.Counts(moment); err != nil {
				return err
			}
		}
	}
	return nil
}

// counts reports whether known signatures were made while their keys were valid. signed is the
// time in the note, and stored the bus's time.
func counts(known note.Verifiers, by []note.Signature, signed, stored time.Time) error {
	keys, bounded := known.(*Keys)
	if !bounded {
		return nil
	}
	for _, s := range by {
		if err := keys.counts(s, signed, stored); err != nil {
			return err
		}
	}
	return nil
}
