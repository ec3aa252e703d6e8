package command

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/credentials"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/program"
)

// newControlPlane are the commands for a control plane whose programs another program
// starts, such as docker compose.
func newControlPlane() *cobra.Command {
	group := &cobra.Command{
		Use: "control-plane", Short: "Prepare a control plane in containers: keys, roles and simulated nodes",
		Long: `Creates keys, roles and simulated nodes for a control plane whose programs are started
otherwise, as by docker-compose.yaml. For trials, not for production.`,
		Args: cobra.NoArgs,
	}
	group.AddCommand(newKeys(), newPrepare(), newKubeconfig(), credentials.NewBusAddress(), credentials.NewBusKeys())
	return group
}

// elsewhereOptions are the flags for such a control plane.
type elsewhereOptions struct{ localcluster.Elsewhere }

func (o *elsewhereOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.Dir, "dir", o.Dir, "`directory` of keys and kubeconfigs")
	f.StringVar(&o.Server, "server", "https://kube-apiserver:6443", "`URL` of the API server")
}

func (o *elsewhereOptions) check() error {
	if o.Dir == "" {
		return fmt.Errorf("--dir is empty; name the directory of keys and kubeconfigs")
	}
	return nil
}

func newKeys() *cobra.Command {
	o, bus := elsewhereOptions{}, credentials.KeyOptions{}
	var kubeconfigs, certificates, notaries []string
	return program.Program{
		Use: "keys", Short: "Create keys, certificates and kubeconfigs, unless they exist",
		Long: `Creates in --dir the keys and certificates that kubeadm would create, a kubeconfig for
each user, kwok's configuration, and passwords for the bus. Existing keys are kept.`,
		Flags: []func(*pflag.FlagSet){o.add, bus.Add, func(f *pflag.FlagSet) {
			f.StringSliceVar(&kubeconfigs, "kubeconfig-for", nil, "`user=directory` to which that user's kubeconfig and the root certificate are also copied")
			f.StringSliceVar(&notaries, "notary-keys-for", nil, "`directory=directory` of the key of a notary, notary.key, and of its public part, notary.key.pub")
			f.StringSliceVar(&certificates, "root-certificate-for", nil, "`directory` to which only the root certificate is copied")
		}},
		Run: func(context.Context) error {
			if err := o.check(); err != nil {
				return err
			}
			if err := o.WriteFiles(); err != nil {
				return err
			}
			for _, to := range append(kubeconfigs, certificates...) {
				user, dir, named := strings.Cut(to, "=")
				if !named {
					user, dir = "", to
				}
				if err := o.HandOut(localcluster.User(user), dir); err != nil {
					return err
				}
			}
			for _, to := range notaries {
				private, public, both := strings.Cut(to, "=")
				if !both {
					return fmt.Errorf("read --notary-keys-for: %q is one directory; name the one of the key and the one of its public part, as in PRIVATE=PUBLIC", to)
				}
				if err := credentials.WriteNotaryKeys(private, public); err != nil {
					return err
				}
			}
			return bus.Write(o.Dir)
		},
	}.Command()
}

func newPrepare() *cobra.Command {
	o := elsewhereOptions{}
	return program.Program{
		Use: "prepare", Short: "Wait for the API server, and add roles and simulated nodes",
		Flags: []func(*pflag.FlagSet){o.add, func(f *pflag.FlagSet) { f.IntVar(&o.Nodes, "nodes", 10, "simulated nodes") }},
		Run: func(ctx context.Context) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.Prepare(ctx)
		},
	}.Command()
}

func newKubeconfig() *cobra.Command {
	o, user := elsewhereOptions{}, ""
	return program.Program{
		Use: "kubeconfig", Short: "Print a user's kubeconfig",
		Long: `Prints the kubeconfig of a user, with --server as the address of the API server.`,
		Flags: []func(*pflag.FlagSet){o.add, func(f *pflag.FlagSet) {
			f.StringVar(&user, "user", string(localcluster.Admin), "`name` of the user")
		}},
		Run: func(context.Context) error {
			if err := o.check(); err != nil {
				return err
			}
			kubeconfig, err := o.Kubeconfig(localcluster.User(user), o.Server)
			if err != nil {
				return err
			}
			_, err = os.Stdout.Write(kubeconfig)
			return err
		},
	}.Command()
}
