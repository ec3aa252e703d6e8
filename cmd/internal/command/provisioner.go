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
		use: "provisioner", short: "Make the streams and consumers that services ask for",
		long: `Makes the streams and consumers of the services on a bus with accounts, where they may
not make any themselves: who makes one can have the server send what is stored to any
subject. It comes as the user provisioner, decides by its own flags what a stream looks
like and how much of it is kept, and needs nothing of Kubernetes. Any number may run.
With --nats-max-store it makes room on stock NATS servers before they are full.
millrace run does the same; a bus without accounts needs none.`,
		flags: []func(*pflag.FlagSet){bus.add, service.add, store.add},
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
		Use: "accounts", Short: "Print the accounts of a bus: who may do what on it",
		Long: `Prints the accounts and users of a NATS server, in the words of its configuration, with
what each service may publish, hear and ask: deployments/nats/accounts.conf. The passwords
are variables of the server's environment; millrace bus passwords makes them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), access.New(catalogued()))
			return err
		},
	}
}
