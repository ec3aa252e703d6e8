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
	"github.com/millrace/millrace/cmd/internal/reader/audit"
	"github.com/millrace/millrace/cmd/internal/settings"
)

// Version is the version of the program, set when it is built. It is recorded
// in every turn.
var Version = "dev"

// exitFound is the exit code of verify if it could read the record and found damage.
const exitFound = 2

// Main runs the command line and returns the exit code: 0 for success, 1 after an error, which
// it has printed, and 2 if verify has found damage.
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
	if errors.Is(err, audit.ErrFound) {
		return exitFound
	}
	return 1
}

// plugin is the program's name as a kubectl plug-in, and completer the name under which
// kubectl runs it to complete the plug-in's command line.
const (
	plugin    = "kubectl-millrace"
	completer = "kubectl_complete-millrace"
)

// signalled is a context that the first signal cancels; a second signal kills the process
// at once.
//
// Upstream: k8s.io/apiserver/pkg/server, SetupSignalHandler.
func signalled() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// underName adapts the command line to the name under which the program was called.
func underName(root *cobra.Command, name string, args []string) []string {
	switch name {
	case plugin:
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl millrace"}
	case completer:
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return args
}

// Root returns the command line, for programs that describe it.
func Root() *cobra.Command { return newRoot() }

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
	group(root)
	return root
}

// program is one subcommand: its description, flags and function.
type program struct {
	use, short, long string
	aliases          []string
	flags            []func(*pflag.FlagSet)
	check            func() error // validates the flags before run; may be nil
	run              func(ctx context.Context) error
}

// cobra makes the subcommand. Before run, it fills the flags from the environment and --config,
// and sets up logging.
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
	titled("logs", func(f *pflag.FlagSet) { logsapi.AddFlags(logging, f) })(cmd.Flags())
	cmd.SetUsageFunc(showSections)
	return cmd
}
