package notary

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Generate makes a key for a notary, and its public part. The name tells people
// whose it is, such as notary.prod.example.com; it may hold neither a space nor "+".
func Generate(name string) (private, public string, err error) {
	if private, public, err = note.GenerateKey(rand.Reader, name); err != nil {
		return "", "", fmt.Errorf("make a key for %q: %w", name, err)
	}
	return private, public, nil
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
	// PRIVATE+KEY+<name>+<hash>+<algorithm and seed>
	parts := strings.SplitN(private, "+", 5)
	seed, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return nil, nil, errors.New("it is a private key, but not an Ed25519 one")
	}
	public, err := note.NewEd25519VerifierKey(signer.Name(), ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey))
	if err != nil {
		return nil, nil, fmt.Errorf("derive the public key: %w", err)
	}
	verifier, err := note.NewVerifier(public)
	return signer, verifier, err
}

// Verifiers reads public keys, one a line; empty lines and those that begin with #
// count for nothing.
func Verifiers(text string) (keys []note.Verifier, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.Contains(line, "PRIVATE+KEY+") { // behind whatever else: an error repeats no private key
			return nil, errors.New("it holds a private key, which the notary alone may have: name the public one")
		}
		key, err := note.NewVerifier(line)
		if err != nil {
			return nil, fmt.Errorf("%q is no public key of a notary: %w", line, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("it holds no public key")
	}
	return keys, nil
}
