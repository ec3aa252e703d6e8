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

// Generate makes a key for a notary, and its public part, which counts from now on, for
// [Keys.Read]. The name tells people whose it is, such as notary.prod.example.com; it may
// hold neither a space nor "+".
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

// Signer reads a private key, and gives the public one with it.
//
// Errors: the text is none; it is not repeated in the error.
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

// seed is the key in a private key's text: PRIVATE+KEY+<name>+<hash>+<algorithm and seed>.
func seed(private string) (ed25519.PrivateKey, error) {
	parts := strings.SplitN(private, "+", 5)
	text, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(text) != 1+ed25519.SeedSize {
		return nil, errors.New("it is a private key, but not an Ed25519 one")
	}
	return ed25519.NewKeyFromSeed(text[1:]), nil
}

// Keys are the public keys whose pages are trusted, and when. The zero value trusts none.
type Keys struct {
	plain   []note.Verifier
	bounded []sign.Key
}

var _ note.Verifiers = (*Keys)(nil)

// Add trusts a key, always.
func (k *Keys) Add(key note.Verifier) { k.plain = append(k.plain, key) }

// Read trusts what a file of public keys holds: PEM blocks, whose headers say when each
// counts, as [sign.ParseTrust] reads them; or lines with one key each, which counts
// always, as older versions wrote them. Lines that begin with # are remarks.
//
// Errors: it holds no public key, or something else.
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
		if strings.Contains(line, "PRIVATE+KEY+") { // behind whatever else: an error repeats no private key
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

// Empty tells whether no key is trusted.
func (k *Keys) Empty() bool { return len(k.plain)+len(k.bounded) == 0 }

// Verifier implements [note.Verifiers]. What has no name in its file is trusted under any.
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

// counts tells whether the key of a signature counts at some moments.
//
// Errors: [sign.ErrUnproven]; it names the key.
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

// counts tells whether what was signed by a key that is known was signed while that counted.
// signed is what the note says of the time, and stored what the bus says.
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
