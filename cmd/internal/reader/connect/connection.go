package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/certs"
	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

const (
	// LocalBus is the default address of a bus on this machine.
	LocalBus = "nats://127.0.0.1:4222"
	// Patience is the time-out of connecting to the bus.
	Patience = 5 * time.Second
)

// Connection is the address of the bus, and the login.
type Connection struct {
	URL string
	// User logs in with the password in PasswordFile; empty: the login in the URL.
	User, PasswordFile string
	Credentials        string
	// CAFile is the certificate of the bus's authority; CertFile and KeyFile are the
	// client's certificate and its key.
	CAFile, CertFile, KeyFile string
	// CAData is the same certificate as text.
	CAData string
	// Writes asks for the main user, with all rights, if a bus on this machine has saved a login.
	Writes bool
}

// Source is where the record is: on a bus, or in a file that was exported from one.
type Source struct {
	Connection
	// Record is the file; empty: on the bus.
	Record string
}

// Add adds the flags.
func (s *Source) Add(f *pflag.FlagSet) {
	s.Connection.Add(f)
	f.StringVar(&s.Record, "record", s.Record, "`file` from millrace export to read instead of the bus")
}

// Open opens the file or connects to the bus, and returns the function that closes it.
func (s *Source) Open(ctx context.Context, patience time.Duration) (bus.Archive, func() error, error) {
	if s.Record != "" {
		f, err := archive.Open(s.Record)
		if err != nil {
			return nil, nil, err
		}
		return f, f.Close, nil
	}
	b, err := s.open(ctx, patience)
	if err != nil {
		return nil, nil, err
	}
	return b, b.Close, nil
}

// Add adds the flags.
func (c *Connection) Add(f *pflag.FlagSet) {
	f.StringVar(&c.URL, "nats-url", c.URL, "`address` of the NATS server, or several with commas")
	f.StringVar(&c.User, "nats-user", c.User, "`name` of the user with the password in --nats-password-file")
	f.StringVar(&c.PasswordFile, "nats-password-file", c.PasswordFile, "`file` with the password of --nats-user, which is read again at each connection")
	f.StringVar(&c.Credentials, "nats-credentials", c.Credentials, "`file` with NATS credentials (JWT and seed)")
	f.StringVar(&c.CAFile, "nats-ca-file", c.CAFile, "`file` with the CA of the NATS server's certificate; requires TLS")
	f.StringVar(&c.CAData, "nats-ca-data", c.CAData, "CA of the NATS server's certificate in PEM, instead of --nats-ca-file")
	f.StringVar(&c.CertFile, "nats-cert-file", c.CertFile, "`file` with the client certificate for the NATS server")
	f.StringVar(&c.KeyFile, "nats-key-file", c.KeyFile, "`file` with the key of --nats-cert-file")
}

// Options are the options of a connection with that name.
//
// Errors: a password or certificate file cannot be used.
func (c *Connection) Options(name string) (stream.Options, error) {
	options := stream.Options{URL: c.URL, Name: "millrace-" + name, Credentials: c.Credentials, Backups: true}
	if c.guest() {
		options.Guest, options.APIPrefix = true, embedded.GuestPrefix
	}
	options.CAFile, options.CertFile, options.KeyFile = c.CAFile, c.CertFile, c.KeyFile
	options.User, options.PasswordFile, options.CAData = c.User, c.PasswordFile, []byte(c.CAData)
	if err := errors.Join(c.checkLogin(), c.checkCertificates()); err != nil {
		return options, err
	}
	user := embedded.MainUser
	if name == readerName && !c.Writes {
		user = embedded.GuestUser
	}
	return local(options, user), nil
}

// readerName is the connection name of commands that only read.
const readerName = "reader"

// checkLogin refuses a password that cannot be read, before connecting.
func (c *Connection) checkLogin() error {
	if (c.User == "") != (c.PasswordFile == "") {
		return errors.New("--nats-user and --nats-password-file belong together: name both or neither")
	}
	if c.PasswordFile == "" {
		return nil
	}
	if _, err := os.ReadFile(c.PasswordFile); err != nil {
		return fmt.Errorf("read --nats-password-file: %w", err)
	}
	return nil
}

// checkCertificates refuses certificate files that cannot be used, before connecting.
func (c *Connection) checkCertificates() error {
	if c.CAFile != "" {
		if _, err := certs.ReadAuthorities(c.CAFile); err != nil {
			return fmt.Errorf("read --nats-ca-file: %w", err)
		}
	}
	switch {
	case c.CertFile == "" && c.KeyFile == "":
		return nil
	case c.CertFile == "" || c.KeyFile == "":
		return errors.New("--nats-cert-file and --nats-key-file belong together: name both or neither")
	}
	if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
		return fmt.Errorf("read --nats-cert-file and --nats-key-file: %w", err)
	}
	return nil
}

// guest is whether the login is that of a reader or a shadow, which read without consumers.
func (c *Connection) guest() bool {
	if c.User != "" {
		return isGuest(c.User)
	}
	first, _, _ := strings.Cut(c.URL, ",")
	u, err := url.Parse(strings.TrimSpace(first))
	return err == nil && u.User != nil && isGuest(u.User.Username())
}

func isGuest(user string) bool { return user == embedded.GuestUser || user == stream.ShadowUser }

// Redacted is the address without passwords.
func (c *Connection) Redacted() string {
	addresses := strings.Split(c.URL, ",")
	for i, address := range addresses {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil {
			addresses[i] = "(malformed)"
			continue
		}
		addresses[i] = u.Redacted()
	}
	return strings.Join(addresses, ",")
}

// open connects to the bus. It waits at most patience, and not at all if no server listens,
// because a user waits for the answer.
func (c *Connection) open(ctx context.Context, patience time.Duration) (*stream.Bus, error) {
	options, err := c.Options(readerName)
	if err != nil {
		return nil, err
	}
	options.AtOnce = true
	began := time.Now()
	connecting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b, err := stream.Connect(connecting, options)
	switch {
	case err == nil:
		return b, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err()
	case errors.Is(err, natserr.ErrNoServer):
		return nil, c.unreachable(err)
	case errors.Is(err, natserr.ErrUnauthorized):
		return nil, fmt.Errorf("the bus at %s does not let you in (%w): give the reader's login with --nats-url=nats://USER:PASSWORD@HOST:4222, or --nats-credentials", c.Redacted(), err)
	case connecting.Err() != nil:
		given, _ := connecting.Deadline() // the earlier one of ctx and patience
		return nil, c.unreachable(fmt.Errorf("no answer within %v: %w", given.Sub(began).Round(100*time.Millisecond), err))
	default:
		return nil, fmt.Errorf("connect to the bus at %s: %w", c.Redacted(), err)
	}
}

func (c *Connection) unreachable(err error) error {
	return fmt.Errorf("no bus answers at %s (%w): is Millrace running? --nats-url (or MILLRACE_NATS_URL) says where its bus is; millrace run lets readers in with --nats-listen=127.0.0.1:4222",
		c.Redacted(), err)
}
