package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/busflags"
	"github.com/millrace/millrace/cmd/internal/credentials"
	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/serviceflags"
	"github.com/millrace/millrace/pkg/events/access"
)

// newBus is the command that runs the embedded NATS server as a process of its own,
// for separate services where no other NATS server is installed.
func newBus() *cobra.Command {
	server, service := busflags.NewServer(), process.NewOptions()
	server.Listen, server.Alone = "127.0.0.1:4222", true
	cmd := program.Program{
		Use: "bus", Aliases: []string{"nats"}, Short: "Run the embedded NATS JetStream server alone",
		Long: `Runs the NATS JetStream server that "millrace run" embeds as a separate process, for
separate services: standalone, or as one of three servers with a replica of every stream:

  millrace bus --name=a --nats-listen=10.0.0.1:4222 --cluster-listen=10.0.0.1:6222 \
    --routes=10.0.0.1:6222,10.0.0.2:6222,10.0.0.3:6222 --sync-interval=always \
    --nats-accounts=accounts.conf --cluster-password-file=cluster-password \
    --nats-tls-cert-file=tls.crt --nats-tls-key-file=tls.key --cluster-ca-file=ca.crt

and likewise for b and c. The services then need all three addresses in --nats-url, and
--stream-replicas=3. A stock NATS server of version 2.14 or later can take its place.`,
		Flags: []func(*pflag.FlagSet){program.Titled("bus server", server.Add), program.Titled("cluster", server.AddCluster), program.Titled("serving", service.Add)},
		Run: func(ctx context.Context) error {
			running, err := server.Start()
			if err != nil {
				return err
			}
			defer running.Close()
			klog.FromContext(ctx).Info("NATS is listening", "address", server.Listen, "data", server.DataDir)
			service.BusCert, service.BusKey = server.Certificate()
			return service.Run(ctx, []process.Part{{
				Name: "bus", Run: func(ctx context.Context) error { <-ctx.Done(); return nil },
				Checks: map[string]func() error{"cluster": running.Healthy}, Pages: running.Monitoring(), Logins: map[string]health.Login{"/varz": running.Admits},
				Collectors: append(server.Collectors(), running),
			}})
		},
	}.Command()
	cmd.AddCommand(credentials.NewBusPasswords(), newBusAccounts(), credentials.NewBusSecrets())
	return cmd
}

// newProvisioner is the command that creates streams and consumers for services.
func newProvisioner() *cobra.Command {
	bus, service, store := busflags.New(), process.NewOptions(), busflags.StoreSize(0)
	return program.Program{
		Use: "provisioner", Short: "Create the streams and consumers that services ask for",
		Long: `Creates the streams and consumers of the services on a bus with accounts, where the
services may not create any: a user that may can have the server send stored messages to
any subject. The provisioner connects as the user provisioner. Its own flags determine
the settings and the retention of the streams. It needs no access to Kubernetes, and any
number may run. With --nats-max-store it frees space on stock NATS servers before they
are full. millrace run does the same; a bus without accounts needs no provisioner.`,
		Flags: []func(*pflag.FlagSet){program.Titled("bus", bus.Add), program.Titled("serving", service.Add), program.Titled("store", store.Add)},
		Run: func(ctx context.Context) error {
			b, err := bus.Open(ctx, access.Provisioner, nil)
			if err != nil {
				return err
			}
			defer b.Close()
			return service.Run(ctx, append([]process.Part{busflags.ProvisionerPart(b), busflags.AuditPart(b)}, busflags.StorePart(nil, b, store)...))
		},
	}.Command()
}

// newBusAccounts is the command that prints the accounts and permissions of the bus.
func newBusAccounts() *cobra.Command {
	return &cobra.Command{
		Use: "accounts", Short: "Print the accounts of a bus, with the permissions of each user",
		Long: `Prints the accounts and users of a NATS server with their permissions, as NATS
configuration: deployments/nats/accounts.conf. The passwords are variables of the
server's environment; millrace bus passwords creates them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), access.New(credentials.Controllers()))
			return err
		},
	}
}

// newNotary is the command that runs a notary in a process of its own.
func newNotary() *cobra.Command {
	bus, service, o := busflags.New(), process.NewOptions(), serviceflags.NewNotary()
	cmd := program.Program{
		Use: "notary", Short: "Sign the record, so that millrace verify finds every change to it",
		Long: `Follows every log and the streams of turns and outcomes, and stores signed checkpoints of
their content in a stream of its own. With the public key, millrace verify finds what was
changed, removed, inserted or reordered. Any number of notaries may run with the same key.
A notary needs the bus and its key, and no access to Kubernetes: run it where the
operators of the bus cannot read the key. millrace run does the same with --notary-key.`,
		Flags: []func(*pflag.FlagSet){program.Titled("bus", bus.Add), program.Titled("serving", service.Add), program.Titled("notary", o.Add)},
		Run: func(ctx context.Context) error {
			if o.Key == "" {
				return errors.New("--notary-key is missing: name the file with the private key; millrace notary keys makes one")
			}
			bus.Guest = true // a notary has no right to create consumers
			b, err := bus.Open(ctx, "notary", nil)
			if err != nil {
				return err
			}
			defer b.Close()
			parts, err := o.Part(b)
			if err != nil {
				return err
			}
			return service.Run(ctx, append(parts, busflags.AuditPart(b)))
		},
	}.Command()
	cmd.AddCommand(credentials.NewNotaryKeys())
	return cmd
}
