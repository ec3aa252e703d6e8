package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// newProvisioner is the command that creates streams and consumers for services.
func newProvisioner() *cobra.Command {
	bus, service, store := newBusOptions(), newServiceOptions(), storeSize(0)
	return program{
		use: "provisioner", short: "Create the streams and consumers that services ask for",
		long: `Creates the streams and consumers of the services on a bus with accounts, where the
services may not create any: a user that may can have the server send stored messages to
any subject. The provisioner connects as the user provisioner. Its own flags determine
the settings and the retention of the streams. It needs no access to Kubernetes, and any
number may run. With --nats-max-store it frees space on stock NATS servers before they
are full. millrace run does the same; a bus without accounts needs no provisioner.`,
		flags: []func(*pflag.FlagSet){titled("bus", bus.add), titled("serving", service.add), titled("store", store.add)},
		run: func(ctx context.Context) error {
			b, err := bus.open(ctx, access.Provisioner, nil)
			if err != nil {
				return err
			}
			defer b.Close()
			return service.run(ctx, append([]part{provisionerPart(b), auditPart(b)}, storePart(nil, b, store)...))
		},
	}.cobra()
}

// provisionerPart creates the streams and consumers that services on the same bus ask for.
func provisionerPart(b *stream.Bus) part {
	return part{
		name:   access.Provisioner,
		run:    func(ctx context.Context) error { return b.Provide(ctx, catalogued()) },
		checks: map[string]func() error{"provisioner-bus": b.Healthy},
	}
}

// catalogued are the names of all controllers of this version.
func catalogued() (names []string) {
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			names = append(names, e.Name)
		}
	}
	return names
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
			_, err := fmt.Fprint(cmd.OutOrStdout(), access.New(catalogued()))
			return err
		},
	}
}
