package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/cmd/internal/reader"
	"github.com/millrace/millrace/pkg/events/sign"
)

// The files of the keys that sign, wherever they are given out: the private ones, and with
// .pub the public ones of all who sign the same.
const (
	turnKey    = "turn.key"
	outcomeKey = "outcome.key"
	publicKeys = ".pub"
)

// signers is which private key each user has who signs.
var signers = map[string]string{"reconcilers": turnKey, "writer": outcomeKey}

// keepSigningKeys gives the contents of the files with the keys in a directory, and makes
// those that are not there.
func keepSigningKeys(dir string) (map[string]string, error) {
	keys, err := sign.Provide(dir)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, file := range []string{keys.Turns.Private, keys.Turns.Public, keys.Outcomes.Private, keys.Outcomes.Public} {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the signing keys: %w", err)
		}
		files[filepath.Base(file)] = string(text)
	}
	return files, nil
}

// signingKeysFor are the files that a user needs: whoever signs its private key, and whoever
// tells what is signed, the reader with millrace verify too, the public ones.
func (c credentials) signingKeysFor(user string) map[string]string {
	files := map[string]string{}
	private, signs := signers[user]
	if signs {
		files[private] = c.signing[private]
	}
	if signs || user == "reader" {
		for _, name := range []string{turnKey, outcomeKey} {
			files[name+publicKeys] = c.signing[name+publicKeys]
		}
	}
	return files
}

// handOutSigningKeys writes them to the directories of containers.
func (o *busKeyOptions) handOutSigningKeys(made credentials) error {
	for _, to := range o.signing {
		user, dir, named := strings.Cut(to, "=")
		files := made.signingKeysFor(user)
		if !named || len(files) == 0 {
			return fmt.Errorf("read --signing-keys-for: %q is not USER=DIRECTORY, with one of the users reconcilers, writer, reader", to)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("write the signing keys of %s: %w", user, err)
		}
		for name, text := range files {
			if err := reader.WritePrivate(filepath.Join(dir, name), []byte(text)); err != nil {
				return fmt.Errorf("write the signing keys of %s: %w", user, err)
			}
		}
	}
	return nil
}
