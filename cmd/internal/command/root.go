// Package command is the command line of millrace: flags, configuration,
// signals, and the wiring of the services. It decides nothing.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // makes --logging-format=json known

	"github.com/millrace/millrace/cmd/internal/reader"
	"github.com/millrace/millrace/cmd/internal/settings"
)

// Version is the version of the program, set when it is built. It is recorded
// in every turn.
var Version = "dev"

// exitFound is the exit code of verify where the record was read and is not whole.
const exitFound = 2

// Main runs the command line and gives the exit code: 0 when all went well, 1
// after an error, which has been printed, and 2 where verify has found something.
func Main(args []string) int {
	ctx, stop := signalled()
	defer stop()
	root := newRoot()
	root.SetArgs(underName(root, filepath.Base(os.Args[0]), args))
	err := root.ExecuteContext(ctx)
	logs.FlushLogs()
	if err == nil || errors.Is(err, context.Canceled) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "millrace: %v\n", err)
	if errors.Is(err, reader.ErrFound) {
		return exitFound
	}
	return 1
}

// plugin is what the program is called as a plug-in of kubectl, and completer what
// kubectl calls for completing a plug-in's command line.
const (
	plugin    = "kubectl-millrace"
	completer = "kubectl_complete-millrace"
)

// signalled is a context that ends with the first signal; a second one ends the process
// at once, whatever it is waiting for.
//
// Upstream: k8s.io/apiserver/pkg/server, SetupSignalHandler.
func signalled() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// underName takes care of what it means that the program was called by a name.
func underName(root *cobra.Command, name string, args []string) []string {
	switch name {
	case plugin:
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl millrace"}
	case completer:
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return args
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Kubernetes' controllers as event-sourced services on NATS JetStream",
		Long: `Millrace runs the controllers of kube-controller-manager as event-sourced
services. The watcher turns list/watch deltas of the API server into JetStream
streams, the reconcilers decide on them, and the writer applies what they decided.

Every flag can also be set as MILLRACE_<FLAG> in the environment or under "flags:"
in the file given by --config; the command line wins, then the environment.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       Version,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(unknownFlag)
	root.AddCommand(newRun(), newDev(), newBus(), newControlPlane(), newHealthcheck(), newNotary(), newRBAC(), newSigningKeys(), newProvisioner(), newDoctor())
	root.AddCommand(newServices()...)
	root.AddCommand(newTrace(), newUI())
	root.AddCommand(reader.Commands(Version)...)
	return root
}

// program is one subcommand: how it is described, its flags, and what it does.
type program struct {
	use, short, long string
	aliases          []string
	flags            []func(*pflag.FlagSet)
	check            func() error // of the flags, before anything is done; may be nil
	run              func(ctx context.Context) error
}

// cobra makes the subcommand. Before it runs, settings fill the flags and
// logging is set up.
func (p program) cobra() *cobra.Command {
	logging := logsapi.NewLoggingConfiguration()
	file := ""
	cmd := &cobra.Command{
		Use: p.use, Aliases: p.aliases, Short: p.short, Long: p.long, Args: cobra.NoArgs, Version: Version,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := settings.Fill(cmd.Flags(), file, os.LookupEnv); err != nil {
				return err
			}
			if p.check != nil {
				if err := p.check(); err != nil {
					return err
				}
			}
			if err := setUp(cmd.Context(), logging); err != nil {
				return fmt.Errorf("set up logging: %w", err)
			}
			return p.run(cmd.Context())
		},
	}
	// Upstream: "_" is "-" in flags of kube-controller-manager, and one of them,
	// --concurrent_rc_syncs, is documented so.
	cmd.Flags().SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return unknownFlag(cmd, explained(err)) })
	for _, add := range p.flags {
		add(cmd.Flags())
	}
	cmd.Flags().StringVar(&file, "config", "", "YAML `file` with settings; see `millrace --help`")
	logsapi.AddFlags(logging, cmd.Flags())
	return cmd
}
