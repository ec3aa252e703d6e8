package busflags

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/credentials"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// securityOptions are the TLS and password flags of the embedded server. A client that reaches
// it without a password could order the writer's requests.
type securityOptions struct {
	tls embedded.TLSOptions
	// clusterPassword is the file with the password of the cluster's routes.
	clusterPassword string
	// clusterCA is the authority of the routes' certificates, if it is not that of clients.
	clusterCA string
	insecure  bool
	// passwords is the file with the variables of the accounts file.
	passwords string
}

func (o *securityOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.tls.CertFile, "nats-tls-cert-file", o.tls.CertFile, "`file` with the certificate of the embedded NATS server, which is read again when it changes")
	f.StringVar(&o.tls.KeyFile, "nats-tls-key-file", o.tls.KeyFile, "`file` with the key of --nats-tls-cert-file")
	f.StringVar(&o.tls.ClientCAFile, "nats-tls-client-ca-file", o.tls.ClientCAFile,
		"`file` with the CAs of client certificates; every client then needs one (--nats-cert-file)")
	f.BoolVar(&o.insecure, "insecure-bus", o.insecure, "allow a bus that has no users or no TLS to listen beyond loopback: any process that reaches it can order writes")
}

// addCluster adds the flags of a server in a cluster.
func (o *securityOptions) addCluster(f *pflag.FlagSet) {
	f.StringVar(&o.clusterPassword, "cluster-password-file", o.clusterPassword, "`file` with the password that the servers of the cluster use among each other")
	f.StringVar(&o.passwords, "nats-passwords-file", o.passwords,
		"`file` with a line NAME=PASSWORD for each variable of --nats-accounts, from millrace bus secrets (default the environment)")
	f.StringVar(&o.clusterCA, "cluster-ca-file", o.clusterCA, "`file` with the CA of the cluster servers' certificates (default: --nats-tls-client-ca-file)")
}

// Collectors export whether the bus runs with --insecure-bus.
func (o *Server) Collectors() []prometheus.Collector {
	insecure := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "millrace_bus_insecure", Help: "Whether the bus was started with --insecure-bus, and may lack users or TLS.",
	})
	if o.secure.insecure {
		insecure.Set(1)
	}
	return []prometheus.Collector{insecure}
}

// Certificate is the certificate file of the server, with its key; both are empty without TLS.
func (o *Server) Certificate() (cert, key string) {
	return o.secure.tls.CertFile, o.secure.tls.KeyFile
}

// protect adds TLS and users to the options of a server, and refuses options with which
// other processes could order writes.
func (o *Server) protect(options *embedded.Options) error {
	options.TLS = o.secure.tls
	if err := errors.Join(credentials.SetVariables(o.secure.passwords), o.protectCluster(options)); err != nil || o.Listen == "" {
		return err
	}
	if o.secure.insecure {
		klog.Background().Info("The bus is insecure (--insecure-bus): any process that reaches it can order what the writer does", "address", o.Listen)
		return nil
	}
	if err := o.Exposed(); err != nil || o.accounts != "" {
		return err
	}
	return o.makeUsers(options)
}

// Exposed is an error if the flags admit other processes that could order writes.
func (o *Server) Exposed() error {
	switch near := loopback(o.Listen); {
	case o.Listen == "" || o.secure.insecure:
		return nil
	case !near && o.accounts == "" && o.Alone:
		return fmt.Errorf("--nats-listen=%s is reached from other machines, and without --nats-accounts services have no users of their own: name the accounts (millrace bus secrets makes the passwords), listen on 127.0.0.1, or say --insecure-bus", o.Listen)
	case !near && !o.secure.tls.On():
		return fmt.Errorf("--nats-listen=%s is reached from other machines, and passwords would cross the network as they are: give --nats-tls-cert-file and --nats-tls-key-file (millrace bus secrets makes them), listen on 127.0.0.1, or say --insecure-bus", o.Listen)
	case o.accounts == "" && o.cluster.Listen != "":
		return errors.New("the servers of a cluster need the same users: name --nats-accounts, or say --insecure-bus")
	}
	return nil
}

// protectCluster adds TLS and a password to the routes between servers, which no account restricts.
func (o *Server) protectCluster(options *embedded.Options) error {
	if o.cluster.Listen == "" {
		return nil
	}
	options.Cluster.TLS = o.secure.tls
	if o.secure.tls.On() {
		options.Cluster.TLS.ClientCAFile = cmp.Or(o.secure.clusterCA, o.secure.tls.ClientCAFile)
	}
	if o.secure.clusterPassword != "" {
		text, err := os.ReadFile(o.secure.clusterPassword)
		if err != nil {
			return fmt.Errorf("read --cluster-password-file: %w", err)
		}
		if options.Cluster.Password = strings.TrimSpace(string(text)); options.Cluster.Password == "" {
			return fmt.Errorf("read --cluster-password-file: %s is empty", o.secure.clusterPassword)
		}
		options.Cluster.User = credentials.RouteUser
	}
	switch {
	case o.secure.insecure:
		return nil
	case options.Cluster.Password == "":
		return errors.New("any process that reaches --cluster-listen could do all: give --cluster-password-file, or say --insecure-bus")
	case !options.TLS.On() && !loopback(o.cluster.Listen):
		return fmt.Errorf("--cluster-listen=%s is reached from other machines: give --nats-tls-cert-file, --nats-tls-key-file and --cluster-ca-file, or say --insecure-bus", o.cluster.Listen)
	}
	return nil
}

// loopback is true for an address that only this machine can reach.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.IsLoopback()
}

// makeUsers sets the users of a bus without accounts: millrace, with all rights, and reader.
// It makes their passwords once, in the data directory.
func (o *Server) makeUsers(options *embedded.Options) error {
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	passwords, err := credentials.Passwords(filepath.Join(o.DataDir, credentials.PasswordsFile), embedded.MainUser, embedded.GuestUser)
	if err != nil {
		return err
	}
	options.Password = passwords[embedded.MainUser]
	options.GuestPassword = cmp.Or(options.GuestPassword, passwords[embedded.GuestUser])
	return nil
}

// leaveLogins saves the passwords of makeUsers for commands on this machine. It runs once the
// server listens, so that it does not replace the login of another server that has the address.
func (o *Server) leaveLogins(options embedded.Options, running *embedded.Server) {
	if options.Password == "" {
		return
	}
	at, err := url.Parse(running.URL())
	host, _, wrong := net.SplitHostPort(o.Listen)
	if err = errors.Join(err, wrong); err == nil {
		err = connect.SaveLogins(net.JoinHostPort(host, at.Port()), map[string]string{embedded.MainUser: options.Password, embedded.GuestUser: options.GuestPassword})
	}
	if err != nil {
		klog.Background().Error(err, "Commands on this machine need a user and a password for the bus", "passwords", filepath.Join(o.DataDir, credentials.PasswordsFile))
	}
}
