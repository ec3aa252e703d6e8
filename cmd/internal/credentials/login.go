package credentials

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/settings"
	"github.com/millrace/millrace/pkg/events/stream/certs"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// Clients of a bus with users log in with a password. A control plane in containers makes the
// passwords once and hands them out: all of them to the bus, in the accounts file, and to each
// service its own, in a Millrace configuration file with the bus's address.
const (
	// PasswordsFile is the name of the file with the passwords of all users.
	PasswordsFile = "bus-passwords"
	// LoginFile is the name of the file with one user's address and password.
	LoginFile = "bus.yaml"
)

// accountsFiles are the files of deployments/nats with the users' permissions.
var accountsFiles = []string{"accounts.conf"}

// KeyOptions say to which directories passwords and signing keys are written.
type KeyOptions struct {
	accounts string
	bus      string
	logins   []string
	signing  []string
}

// Add adds the flags.
func (o *KeyOptions) Add(f *pflag.FlagSet) {
	f.StringVar(&o.accounts, "bus-accounts", o.accounts, "`directory=directory` of the bus's accounts, deployments/nats, and of a copy with the passwords in it (default: none)")
	f.StringVar(&o.bus, "bus", "nats:4222", "`address` of the bus")
	f.StringSliceVar(&o.logins, "bus-login-for", o.logins, "`user=directory` to which bus.yaml is written: the address of the bus with that user's password, for --config")
	f.StringSliceVar(&o.signing, "signing-keys-for", o.signing, "`user=directory` to which the signing and verification keys of that user are written; users are reconcilers, writer, the split writers and reader")
}

// Write makes the credentials that are missing in dir, and hands them out.
//
// Errors: a flag names no directory or user; a file cannot be read or written.
func (o *KeyOptions) Write(dir string) error {
	if o.accounts == "" {
		if len(o.logins)+len(o.signing) > 0 {
			return errors.New("--bus-login-for or --signing-keys-for without --bus-accounts: name the directory of the accounts and the one of a copy with the passwords")
		}
		return nil
	}
	hosts := []string{"localhost", "127.0.0.1"}
	if host := (&url.URL{Host: o.bus}).Hostname(); host != "" && host != hosts[1] {
		hosts = append(hosts, host)
	}
	made, err := makeCredentials(dir, hosts)
	if err != nil {
		return err
	}
	if err := errors.Join(o.fillIn(made), o.handOutSigningKeys(made)); err != nil {
		return err
	}
	return o.writeLogins(made)
}

// writeLogins writes the bus's address with the user's password for each user.
func (o *KeyOptions) writeLogins(made credentials) error {
	for _, login := range o.logins {
		user, dir, named := strings.Cut(login, "=")
		if !named || !slices.Contains(embedded.Users, user) {
			return fmt.Errorf("read --bus-login-for: %q is not USER=DIRECTORY, with one of the users %s", login, strings.Join(embedded.Users, ", "))
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("write the login of %s: %w", user, err)
		}
		address := url.URL{Scheme: "tls", Host: o.bus, User: url.UserPassword(user, made.passwords[user])}
		text, err := yaml.Marshal(loginSettings{APIVersion: settings.APIVersion, Kind: settings.Kind, Flags: loginFlags{URL: address.String(), CA: string(made.authority.Certificate)}})
		if err != nil {
			return fmt.Errorf("write the login of %s: %w", user, err)
		}
		if err := connect.WritePrivate(filepath.Join(dir, LoginFile), text); err != nil {
			return fmt.Errorf("write the login of %s: %w", user, err)
		}
	}
	return nil
}

// fillIn writes a copy of the accounts files with the passwords filled in.
func (o *KeyOptions) fillIn(made credentials) error {
	from, to, both := strings.Cut(o.accounts, "=")
	if !both {
		return fmt.Errorf("read --bus-accounts: %q is one directory; name the one of the accounts and the one of the copy, as in FROM=TO", o.accounts)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("write the accounts of the bus: %w", err)
	}
	var words []string
	for user, password := range made.passwords {
		words = append(words, "password: $"+embedded.PasswordOf(user), fmt.Sprintf("password: %q", password))
	}
	for _, name := range accountsFiles {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return fmt.Errorf("read the accounts of the bus: %w", err)
		}
		filled := strings.NewReplacer(words...).Replace(string(text))
		if err := connect.WritePrivate(filepath.Join(to, name), []byte(filled)); err != nil {
			return fmt.Errorf("write the accounts of the bus: %w", err)
		}
	}
	return certify(to, made.server)
}

// certify writes the certificate of the bus beside its accounts.
func certify(dir string, server certs.Pair) error {
	err := errors.Join(connect.WritePrivate(filepath.Join(dir, "tls.crt"), server.Certificate), connect.WritePrivate(filepath.Join(dir, "tls.key"), server.Key))
	if err != nil {
		return fmt.Errorf("write the certificate of the bus: %w", err)
	}
	return nil
}

// loginSettings are a configuration file with the address of the bus and nothing else.
type loginSettings struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Flags      loginFlags `json:"flags"`
}

type loginFlags struct {
	URL string `json:"nats-url"`
	CA  string `json:"nats-ca-data"`
}

// Passwords reads the passwords from a file, and adds new ones for users without one.
//
// Errors: the file cannot be read or written.
func Passwords(file string, users ...string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the passwords of the bus: %w", err)
	}
	passwords := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if user, password, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			passwords[user] = password
		}
	}
	var out strings.Builder
	for _, user := range users {
		if passwords[user] == "" {
			passwords[user] = newPassword()
		}
		fmt.Fprintf(&out, "%s %s\n", user, passwords[user])
	}
	if err := connect.WritePrivate(file, []byte(out.String())); err != nil {
		return nil, fmt.Errorf("write the passwords of the bus: %w", err)
	}
	return passwords, nil
}

// newPassword makes a password that begins with a letter, because NATS reads a variable that
// begins with a digit as a number.
func newPassword() string { return "p" + rand.Text() }

// NewBusPasswords is the command that prints a new password for each user.
func NewBusPasswords() *cobra.Command {
	return &cobra.Command{
		Use: "passwords", Short: "Print a new password for each user of deployments/nats/accounts.conf",
		Long: `Prints a line NAME=PASSWORD with a new password for each user of
deployments/nats/accounts.conf, for the environment of a NATS server or for a Secret.`,
		Example: "  millrace bus passwords | kubectl -n millrace-shadow create secret generic millrace-bus --from-env-file=/dev/stdin",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, user := range embedded.Users {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s=%s\n", embedded.PasswordOf(user), newPassword()); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// NewBusAddress is the command that prints the bus's address with a user's password.
func NewBusAddress() *cobra.Command {
	login, at, export := "", "", false
	return program.Program{
		Use: "bus-address", Short: "Print the address of the bus, with a user's password",
		Long: `Prints the address from a bus.yaml that millrace control-plane keys has written, as
other machines reach it, for --nats-url or MILLRACE_NATS_URL.`,
		Flags: []func(*pflag.FlagSet){func(f *pflag.FlagSet) {
			f.StringVar(&login, "login", "", "`file` with the user's login, bus.yaml")
			f.StringVar(&at, "bus", "", "`address` of the bus from the client's side (default: the one in the file)")
			f.BoolVar(&export, "export", false, "print shell export lines, with the CA of the bus's certificate")
		}},
		Run: func(context.Context) error {
			address, ca, err := busAddress(login, at)
			switch {
			case err != nil:
				return err
			case export:
				_, err = fmt.Printf("export MILLRACE_NATS_URL='%s'\nexport MILLRACE_NATS_CA_DATA='%s'\n", address, ca)
			default:
				_, err = fmt.Println(address)
			}
			return err
		},
	}.Command()
}

func busAddress(login, at string) (address, ca string, err error) {
	if login == "" {
		return "", "", errors.New("--login is empty; name the bus.yaml that millrace control-plane keys has written")
	}
	text, err := os.ReadFile(login)
	if err != nil {
		return "", "", fmt.Errorf("read --login: %w", err)
	}
	var given loginSettings
	if err := yaml.Unmarshal(text, &given); err != nil {
		return "", "", fmt.Errorf("read --login %s: %w", login, err)
	}
	where, err := url.Parse(given.Flags.URL)
	if err != nil || where.User == nil {
		return "", "", fmt.Errorf("read --login: %s has no nats-url with a user; name the bus.yaml that millrace control-plane keys has written", login)
	}
	if at != "" {
		where.Host = at
	}
	return where.String(), given.Flags.CA, nil
}

// NewBusKeys is the command that makes the credentials of a bus for containers.
func NewBusKeys() *cobra.Command {
	o, dir := KeyOptions{}, ""
	return program.Program{
		Use: "bus-keys", Short: "Create the passwords and the certificate of a bus, unless they exist",
		Flags: []func(*pflag.FlagSet){o.Add, func(f *pflag.FlagSet) {
			f.StringVar(&dir, "dir", "", "`directory` for all keys")
		}},
		Run: func(context.Context) error {
			if dir == "" || o.accounts == "" {
				return errors.New("name --dir and --bus-accounts: the directory of the keys, and those of the accounts")
			}
			return o.Write(dir)
		},
	}.Command()
}
