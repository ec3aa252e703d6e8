package sign

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Pair is the path of a private key and of its trust file.
type Pair struct{ Private, Public string }

// Provided are the keys of an installation whose services share a disk.
type Provided struct{ Turns, Outcomes Pair }

// Flags are the flags of a service, such as "reconcilers"; nil for a service that neither signs
// nor verifies.
func (p Provided) Flags(service string) []string {
	switch service {
	case "reconcilers":
		return []string{"--turn-signing-key-file=" + p.Turns.Private, "--outcome-keys-file=" + p.Outcomes.Public}
	case "writer":
		return []string{"--outcome-signing-key-file=" + p.Outcomes.Private, "--turn-keys-file=" + p.Turns.Public}
	}
	return nil
}

// Provide gives the keys in a directory, and creates missing ones, readable only for their
// owner.
//
// Errors: the directory cannot be used; or a private key exists without its public one.
func Provide(dir string) (p Provided, err error) { return ProvideFrom(dir, time.Now()) }

// ProvideFrom is [Provide] with keys that are valid from a given time on. Until then, messages
// without a signature count: during a rolling upgrade, some services do not sign yet.
func ProvideFrom(dir string, from time.Time) (p Provided, err error) {
	if p.Turns, err = pair(dir, "turn.key", from); err == nil {
		p.Outcomes, err = pair(dir, "outcome.key", from)
	}
	if err != nil {
		return Provided{}, fmt.Errorf("keep signing keys in %s: %w", dir, err)
	}
	return p, nil
}

// ProvidePair gives the pair of this name in a directory, and creates it if it is missing.
//
// Errors: those of [Provide].
func ProvidePair(dir, name string) (Pair, error) {
	p, err := pair(dir, name, time.Now())
	if err != nil {
		return Pair{}, fmt.Errorf("keep a signing key in %s: %w", dir, err)
	}
	return p, nil
}

// pair writes the public key first, so that a private key never exists without it.
func pair(dir, name string, from time.Time) (Pair, error) {
	p := Pair{Private: filepath.Join(dir, name), Public: filepath.Join(dir, name+".pub")}
	_, err := os.Stat(p.Private)
	if err == nil {
		_, err = os.Stat(p.Public)
		return p, err
	}
	if !errors.Is(err, os.ErrNotExist) {
		return p, err
	}
	private, public, err := generate(from)
	if err != nil {
		return p, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return p, err
	}
	if err := os.WriteFile(p.Public, public, 0o600); err != nil {
		return p, err
	}
	return p, os.WriteFile(p.Private, private, 0o600)
}
