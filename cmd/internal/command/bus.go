package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/pkg/events/stream"
)

// newBus is the command that runs the embedded NATS server as a process of its own,
// for separate services where no other NATS server is installed.
func newBus() *cobra.Command {
	server, service := newServerOptions(), newServiceOptions()
	server.listen, server.alone = "127.0.0.1:4222", true
	cmd := program{
		use: "bus", aliases: []string{"nats"}, short: "Run the embedded NATS JetStream server alone",
		long: `Runs the NATS JetStream server that "millrace run" embeds as a separate process, for
separate services: standalone, or as one of three servers with a replica of every stream:

  millrace bus --name=a --nats-listen=10.0.0.1:4222 --cluster-listen=10.0.0.1:6222 \
    --routes=10.0.0.1:6222,10.0.0.2:6222,10.0.0.3:6222 --sync-interval=always \
    --nats-accounts=accounts.conf --cluster-password-file=cluster-password \
    --nats-tls-cert-file=tls.crt --nats-tls-key-file=tls.key --cluster-ca-file=ca.crt

and likewise for b and c. The services then need all three addresses in --nats-url, and
--stream-replicas=3. A stock NATS server of version 2.14 or later can take its place.`,
		flags: []func(*pflag.FlagSet){titled("bus server", server.add), titled("cluster", server.addCluster), titled("serving", service.add)},
		run: func(ctx context.Context) error {
			running, err := server.start()
			if err != nil {
				return err
			}
			defer running.Close()
			klog.FromContext(ctx).Info("NATS is listening", "address", server.listen, "data", server.dataDir)
			service.busCert, service.busKey = server.secure.tls.CertFile, server.secure.tls.KeyFile
			return service.run(ctx, []part{{
				name: "bus", run: func(ctx context.Context) error { <-ctx.Done(); return nil },
				checks: map[string]func() error{"cluster": running.Healthy}, pages: running.Monitoring(), logins: map[string]health.Login{"/varz": running.Admits},
				collectors: append(server.secure.collectors(), running),
			}})
		},
	}.cobra()
	cmd.AddCommand(newBusPasswords(), newBusAccounts(), newBusSecrets())
	return cmd
}

// addCluster adds the flags for accounts and clustering of a server in a process of its own, in NATS' terms.
func (o *serverOptions) addCluster(f *pflag.FlagSet) {
	f.StringVar(&o.accounts, "nats-accounts", o.accounts,
		"NATS configuration `file` with the accounts and users of the bus, such as deployments/nats/accounts.conf; without it the bus has two users: millrace, with all permissions, and reader. Streams created without it are not visible with it")
	f.StringVar(&o.name, "name", o.name, "name of the server, unique in its cluster; it must not change")
	f.StringVar(&o.cluster.Listen, "cluster-listen", o.cluster.Listen,
		"`address` for the other servers of the cluster (default: the server is standalone)")
	o.secure.addCluster(f)
	f.StringVar(&o.cluster.Name, "cluster-name", "millrace", "name of the cluster, the same on all its servers")
	f.StringSliceVar(&o.cluster.Routes, "routes", o.cluster.Routes,
		"cluster `addresses` of the servers; that of this server may be included")
	f.BoolVar(&o.cluster.NoAdvertise, "no-advertise", o.cluster.NoAdvertise,
		"do not advertise the addresses of the other servers to clients, which then use only those in their --nats-url, such as proxies")
}

// syncInterval is a duration or, as in NATS' configuration, "always".
type syncInterval time.Duration

const always = "always"

// Set parses the flag; 0 is the same as always.
func (s *syncInterval) Set(text string) error {
	if text == always {
		*s = 0
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is neither %q nor a time such as 2m", text, always)
	}
	*s = syncInterval(d)
	return nil
}

// String formats the flag's value.
func (s *syncInterval) String() string {
	if *s == 0 {
		return always
	}
	return time.Duration(*s).String()
}

// Type is the value's name in the help.
func (s *syncInterval) Type() string { return "duration" }

// check refuses flags that contradict each other.
func (o *serverOptions) check() error {
	switch {
	case o.dataDir == "":
		return errors.New("--data-dir is empty; name the directory of the streams")
	case o.cluster.Listen == "" && len(o.cluster.Routes) > 0:
		return errors.New("--routes without --cluster-listen: name the address on which this server listens for the others")
	case o.cluster.Listen != "" && (o.name == "" || len(o.cluster.Routes) == 0):
		return errors.New("--cluster-listen needs a --name of its own for each server, and --routes to the others")
	}
	return nil
}

// start runs the embedded server.
func (o *serverOptions) start() (*embedded.Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	guests, err := o.guestPassword()
	if err != nil {
		return nil, err
	}
	options := embedded.Options{
		GuestPassword: guests, Accounts: o.accounts, Dir: o.dataDir, Listen: o.listen, Name: o.name, Cluster: o.cluster, SyncAlways: o.sync == 0, SyncInterval: o.sync,
		MaxStore: int64(o.store),
		Log:      slog.New(logr.ToSlogHandler(klog.Background().WithName("nats").V(2))),
	}
	if err := o.protect(&options); err != nil {
		return nil, err
	}
	running, err := embedded.Serve(options)
	if err == nil {
		o.leaveLogins(options, running)
	}
	return running, err
}

// guestPassword reads the password of the readers; "" admits no reader.
func (o *serverOptions) guestPassword() (string, error) {
	if o.guests == "" {
		return "", nil
	}
	text, err := os.ReadFile(o.guests)
	if err != nil {
		return "", fmt.Errorf("read --reader-password-file: %w", err)
	}
	password := strings.TrimSpace(string(text))
	if password == "" {
		return "", fmt.Errorf("read --reader-password-file: %s is empty", o.guests)
	}
	return password, nil
}

// open connects to the bus: to server if it is not nil, otherwise to --nats-url.
func (o *busOptions) open(ctx context.Context, name string, server *embedded.Server) (*stream.Bus, error) {
	options, err := o.options(name)
	if err != nil {
		return nil, err
	}
	options.Server, options.Log = server, logger("bus")
	if server == nil && o.at.URL == "" {
		return nil, errors.New("no bus: set --nats-url to the address of a NATS server, such as nats://127.0.0.1:4222")
	}
	waiting := time.AfterFunc(remark, func() {
		klog.FromContext(ctx).Info("Waiting for NATS, which does not answer", "url", o.at.Redacted())
	})
	defer waiting.Stop()
	b, err := stream.Connect(ctx, options)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err() // stopped while waiting, which is no failure
	}
	return b, err
}

// options translates the flags to the options of the connection.
//
// Errors: a file cannot be read, or the retention is below its minimum.
func (o *busOptions) options(name string) (stream.Options, error) {
	options, err := o.at.Options(name)
	if err != nil {
		return options, err
	}
	options.Monitoring, options.Replicas = o.monitoring, o.replicas
	options.Guest = options.Guest || o.guest
	options.LogAge, options.LogBytes, options.Retention = o.maxAge, o.maxBytes, o.retention
	return options, o.checkRetention()
}

// remark is how long NATS may take to answer before open logs that it waits.
const remark = time.Second

// logger is a slog.Logger that writes to klog under a name.
func logger(name string) *slog.Logger {
	return slog.New(logr.ToSlogHandler(klog.Background().WithName(name)))
}
