package credentials

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/pkg/events/stream/certs"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// Validity of the certificates of an installation. Servers reload theirs when they change.
const (
	authorityAge = 10 * 365 * 24 * time.Hour
	// ServerAge is the validity of a server's certificate.
	ServerAge = 5 * 365 * 24 * time.Hour
)

// RouteUser is the user with which the servers of a cluster log in to each other.
const RouteUser = "route"

// credentials are the certificates, passwords and signing keys of an installation.
type credentials struct {
	authority, server certs.Pair
	cluster           string // the password of the cluster's routes
	passwords         map[string]string
	signing           map[string]string // the files of the keys that sign turns and outcomes
}

// makeCredentials reads the credentials in a directory, and makes those that are missing.
// Existing ones stay: remove bus-server.crt to have a certificate made for other hosts.
func makeCredentials(dir string, hosts []string) (c credentials, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, fmt.Errorf("make the directory of credentials: %w", err)
	}
	if c.passwords, err = Passwords(filepath.Join(dir, PasswordsFile), embedded.Users...); err != nil {
		return c, err
	}
	if c.authority, err = KeepPair(dir, "bus-ca", func() (certs.Pair, error) { return certs.NewAuthority("millrace-bus", authorityAge) }); err != nil {
		return c, err
	}
	if c.server, err = KeepPair(dir, "bus-server", func() (certs.Pair, error) { return c.authority.Issue("millrace-bus", hosts, ServerAge) }); err != nil {
		return c, err
	}
	routes, err := Passwords(filepath.Join(dir, "cluster-password"), RouteUser)
	c.cluster = routes[RouteUser]
	if err == nil {
		c.signing, err = keepSigningKeys(filepath.Join(dir, "signing"))
	}
	return c, err
}

// KeepPair reads a certificate with its key from a directory, and issues them if they are missing.
//
// Errors: a file of the pair cannot be read or written, or issue fails.
func KeepPair(dir, name string, issue func() (certs.Pair, error)) (certs.Pair, error) {
	certificate, key := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	var pair certs.Pair
	var failed [2]error
	pair.Certificate, failed[0] = os.ReadFile(certificate)
	pair.Key, failed[1] = os.ReadFile(key)
	switch err := errors.Join(failed[:]...); {
	case err == nil:
		return pair, nil
	case !errors.Is(failed[0], fs.ErrNotExist):
		return pair, fmt.Errorf("read the certificate %s: %w", name, err)
	}
	pair, err := issue()
	if err != nil {
		return pair, fmt.Errorf("make the certificate %s: %w", name, err)
	}
	// The certificate is written last, because without it the next run issues both again.
	if err := errors.Join(connect.WritePrivate(key, pair.Key), connect.WritePrivate(certificate, pair.Certificate)); err != nil {
		return pair, fmt.Errorf("write the certificate %s: %w", name, err)
	}
	return pair, nil
}

// variables is the content of --nats-passwords-file.
func (c credentials) variables() string {
	var text strings.Builder
	for _, user := range embedded.Users {
		fmt.Fprintf(&text, "%s=%s\n", embedded.PasswordOf(user), c.passwords[user])
	}
	return text.String()
}

// SetVariables sets the variables of a --nats-passwords-file in the process's environment, because
// NATS looks them up there. The environment with which the process was started, which other
// processes can see, does not change.
//
// Errors: the file cannot be read, or a line is not NAME=PASSWORD.
func SetVariables(file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read --nats-passwords-file: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, password, is := strings.Cut(strings.TrimSpace(line), "=")
		if !is || password == "" {
			return fmt.Errorf("read --nats-passwords-file: a line of %s is not NAME=PASSWORD", file)
		}
		if err := os.Setenv(name, password); err != nil {
			return fmt.Errorf("read --nats-passwords-file: %w", err)
		}
	}
	return nil
}

// secrets are one Secret for each service, with its own password, and one for the bus, with all.
func (c credentials) secrets(namespace string) []corev1.Secret {
	secret := func(name string, data map[string]string) corev1.Secret {
		return corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: "millrace-" + name, Namespace: namespace},
			Type:       corev1.SecretTypeOpaque, StringData: data,
		}
	}
	all := []corev1.Secret{secret("bus", map[string]string{
		"passwords": c.variables(), "cluster-password": c.cluster,
		"ca.crt": string(c.authority.Certificate), "tls.crt": string(c.server.Certificate), "tls.key": string(c.server.Key),
	})}
	for _, user := range embedded.Users {
		data := c.signingKeysFor(user)
		data["password"], data["ca.crt"] = c.passwords[user], string(c.authority.Certificate)
		all = append(all, secret(user+"-bus", data))
	}
	return all
}

// busHosts are the host names of the bus in Millrace's manifests, for its certificate.
func busHosts(namespace string) []string {
	hosts := []string{"localhost", "127.0.0.1"}
	for _, service := range []string{"millrace-bus", "millrace-nats"} {
		for _, name := range []string{service, service + "." + namespace, service + "." + namespace + ".svc"} {
			hosts = append(hosts, name)
			if strings.Contains(name, "nats") {
				hosts = append(hosts, "*."+name)
			}
		}
	}
	return hosts
}

// NewBusSecrets is the command that makes the credentials of an installation.
func NewBusSecrets() *cobra.Command {
	dir, namespace, files := "", "millrace-system", ""
	var hosts []string
	cmd := &cobra.Command{
		Use: "secrets", Short: "Make the passwords, certificates and signing keys of a bus, as one Secret for each service",
		Long: `Creates in --dir a CA, the certificate of the bus, a password for each of its users, and
the keys that sign turns and outcomes, and prints one Secret for each service with only
what that service needs: only reconcilers get the private key of turns, only writers
those of outcomes. Split writers (deployments/kubernetes-split) each have a user and a
key, which is valid for its controllers only. Existing files in --dir are kept: a second
run prints the same Secrets, with the changes made in signing (docs/verify.md). Keep the
directory secret: it gives every permission on the bus. It does not have the key of a
notary, which millrace notary keys creates elsewhere.

With --files the Secrets are written as directories with a file for each entry, for
services and NATS servers outside of Kubernetes (deployments/nats/nats.conf).`,
		Example: "  millrace bus secrets --dir=millrace-credentials | kubectl apply -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return errors.New("--dir is empty: name the directory in which passwords and keys are kept")
			}
			c, err := makeCredentials(dir, slices.Concat(busHosts(namespace), hosts))
			if err != nil {
				return err
			}
			if files != "" {
				return writeFiles(files, c.secrets(namespace))
			}
			return writeSecrets(cmd.OutOrStdout(), c.secrets(namespace))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", dir, "`directory` of the passwords and keys")
	cmd.Flags().StringVar(&namespace, "namespace", namespace, "namespace of the Secrets")
	cmd.Flags().StringVar(&files, "files", files, "`directory` to which each Secret is written as a directory, instead of printing it")
	cmd.Flags().StringSliceVar(&hosts, "hosts", nil, "additional `names` and addresses of the bus for its certificate")
	return cmd
}

func writeSecrets(to io.Writer, secrets []corev1.Secret) error {
	for _, one := range secrets {
		text, err := yaml.Marshal(one)
		if err != nil {
			return fmt.Errorf("write the Secret %s: %w", one.Name, err)
		}
		if _, err := fmt.Fprintf(to, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes each Secret as a directory with a file for each entry.
func writeFiles(dir string, secrets []corev1.Secret) error {
	for _, one := range secrets {
		folder := filepath.Join(dir, one.Name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("write the Secret %s as files: %w", one.Name, err)
		}
		for name, text := range one.StringData {
			if err := connect.WritePrivate(filepath.Join(folder, name), []byte(text)); err != nil {
				return fmt.Errorf("write the Secret %s as files: %w", one.Name, err)
			}
		}
	}
	return nil
}
