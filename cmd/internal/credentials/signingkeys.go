package credentials

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// The names of signing key files as each user gets them: the private key, and with .pub the
// public keys of all users that sign the same.
const (
	turnKey    = "turn.key"
	outcomeKey = "outcome.key"
	publicKeys = ".pub"
)

// signer has the names of a user's key file: in the directory of all keys, and as handed out.
type signer struct{ kept, given string }

// signers are the users that sign.
var signers = map[string]signer{
	access.Reconciler:        {turnKey, turnKey},
	access.Writer:            {outcomeKey, outcomeKey},
	access.WriterWorkloads:   {"outcome-workloads.key", outcomeKey},
	access.WriterCollectors:  {"outcome-collectors.key", outcomeKey},
	access.WriterCredentials: {"outcome-credentials.key", outcomeKey},
}

// keepSigningKeys reads the key files in a directory, by name, and makes those that are missing.
// The key of a split writer counts only for its share of the controllers, as this version
// divides them, regardless of the version that made the key.
func keepSigningKeys(dir string) (map[string]string, error) {
	keys, err := sign.Provide(dir)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	read := func(paths ...string) error {
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("read the signing keys: %w", err)
			}
			files[filepath.Base(path)] = string(text)
		}
		return nil
	}
	if err := read(keys.Turns.Private, keys.Turns.Public, keys.Outcomes.Private, keys.Outcomes.Public); err != nil {
		return nil, err
	}
	for _, user := range access.SplitWriters {
		own, err := sign.ProvidePair(dir, signers[user].kept)
		if err == nil {
			err = read(own.Private, own.Public)
		}
		if err != nil {
			return nil, err
		}
		public, err := countFor([]byte(files[signers[user].kept+publicKeys]), access.Share(user, Controllers()))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", own.Public, err)
		}
		files[outcomeKey+publicKeys] += string(public)
	}
	return files, nil
}

// countFor restricts the keys of a trust file to some controllers.
func countFor(public []byte, controllers []string) (text []byte, err error) {
	keys, err := sign.ParseTrust(public)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		k.Controllers = controllers
		block, err := k.PEM()
		if err != nil {
			return nil, err
		}
		text = append(text, block...)
	}
	return text, nil
}

// signingKeysFor are the key files that a user needs: a signer its private key, and signers and
// the reader (millrace verify) the public keys, to verify signatures.
func (c credentials) signingKeysFor(user string) map[string]string {
	files := map[string]string{}
	own, signs := signers[user]
	if signs {
		files[own.given] = c.signing[own.kept]
	}
	if signs || user == access.Reader {
		for _, name := range []string{turnKey, outcomeKey} {
			files[name+publicKeys] = c.signing[name+publicKeys]
		}
	}
	return files
}

// handOutSigningKeys writes these files to the directories of --signing-keys-for.
func (o *KeyOptions) handOutSigningKeys(made credentials) error {
	for _, to := range o.signing {
		user, dir, named := strings.Cut(to, "=")
		files := made.signingKeysFor(user)
		if !named || len(files) == 0 {
			return fmt.Errorf("read --signing-keys-for: %q is not USER=DIRECTORY, with one of the users reconcilers, reader, %s", to, strings.Join(append([]string{access.Writer}, access.SplitWriters...), ", "))
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("write the signing keys of %s: %w", user, err)
		}
		for name, text := range files {
			if err := connect.WritePrivate(filepath.Join(dir, name), []byte(text)); err != nil {
				return fmt.Errorf("write the signing keys of %s: %w", user, err)
			}
		}
	}
	return nil
}

// Controllers are the names of all controllers of this version.
func Controllers() (names []string) {
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			names = append(names, e.Name)
		}
	}
	return names
}
