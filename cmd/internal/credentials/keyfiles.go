package credentials

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/sign"
)

// NewSigningKeys is the command that makes a key pair.
func NewSigningKeys() *cobra.Command {
	var of []string
	cmd := &cobra.Command{
		Use: "signing-keys FILE", Short: "Create a key that signs turns or outcomes in FILE, and its public part in FILE.pub",
		Long: `Creates a new Ed25519 key. FILE is the secret of the service that signs with it: the
reconcilers (turns) or the writer (outcomes). FILE.pub is for the services that verify
its signatures. A trust file is several such files in one; the headers Not-Before,
Not-After and Revoked of a block (RFC 3339) limit when its key is valid. To change a key,
add the new one to the trust files, then give it to the service that signs, and then give
the old one a Not-After: its earlier signatures stay valid. With --controllers the key is
valid for these controllers only (the header Controllers), for split writers.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range of {
				if !slices.Contains(Controllers(), name) {
					return fmt.Errorf("read --controllers: %q is no controller of this version: %s", name, strings.Join(Controllers(), ", "))
				}
			}
			private, public, err := sign.Generate()
			if err == nil && len(of) > 0 {
				public, err = countFor(public, of)
			}
			if err != nil {
				return err
			}
			if err := create(args[0], string(private), 0o600); err != nil {
				return err
			}
			if err := create(args[0]+".pub", string(public), 0o644); err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), string(public))
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&of, "controllers", nil, "`names` of the controllers whose turns or outcomes the key may sign (default: all)")
	return cmd
}

// NewNotaryKeys is the command that makes the key of a notary.
func NewNotaryKeys() *cobra.Command {
	return &cobra.Command{
		Use: "keys NAME FILE", Short: "Create the key of a notary in FILE, and its public part in FILE.pub",
		Long: `Creates a new Ed25519 key. NAME says whose key it is, such as notary.prod.example.com,
and is part of it. FILE is secret: its holder can sign a forged record. FILE.pub is for
verification, and is printed.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			private, public, err := notary.Generate(args[0])
			if err != nil {
				return err
			}
			if err := create(args[1], private, 0o600); err != nil {
				return err
			}
			if err := create(args[1]+".pub", public, 0o644); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), public)
			return nil
		},
	}
}

// create writes a new file. It never overwrites one, because a lost key cannot be recovered.
func create(name, text string, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists: name another file, or remove it if that key is not needed any more", name)
	}
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	_, err = fmt.Fprintln(f, text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	return nil
}

// WriteNotaryKeys makes the key of a notary in one directory, and its public part in the
// other, unless the key exists. The key is written last, because without it the next run
// makes both again.
//
// Errors: a file cannot be written.
func WriteNotaryKeys(private, public string) error {
	file := filepath.Join(private, "notary.key")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, verifier, err := notary.Generate("notary.control-plane.local")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(public, "notary.key.pub"), []byte(verifier+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the public key of a notary: %w", err)
	}
	return create(file, key, 0o600)
}
