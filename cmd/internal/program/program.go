package program

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // makes --logging-format=json known

	"github.com/millrace/millrace/cmd/internal/settings"
)

// Version is the version of the program, set when it is built. It is recorded
// in every turn.
var Version = "dev"

// Program is one subcommand: its description, flags and function.
type Program struct {
	// Use, Short, Long and Aliases are those of cobra.
	Use, Short, Long string
	Aliases          []string
	// Flags add the flags.
	Flags []func(*pflag.FlagSet)
	// Check validates the flags before Run; may be nil.
	Check func() error
	Run   func(ctx context.Context) error
}

// Command makes the subcommand. Before Run, it fills the flags from the environment and --config,
// and sets up logging.
func (p Program) Command() *cobra.Command {
	logging := logsapi.NewLoggingConfiguration()
	file := ""
	cmd := &cobra.Command{
		Use: p.Use, Aliases: p.Aliases, Short: p.Short, Long: p.Long, Args: cobra.NoArgs, Version: Version,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := settings.Fill(cmd.Flags(), file, os.LookupEnv); err != nil {
				return err
			}
			if p.Check != nil {
				if err := p.Check(); err != nil {
					return err
				}
			}
			if err := setUp(cmd.Context(), logging); err != nil {
				return fmt.Errorf("set up logging: %w", err)
			}
			return p.Run(cmd.Context())
		},
	}
	// Upstream: "_" is "-" in flags of kube-controller-manager, and one of them,
	// --concurrent_rc_syncs, is documented so.
	cmd.Flags().SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return UnknownFlag(cmd, explained(cmd, err)) })
	for _, add := range p.Flags {
		add(cmd.Flags())
	}
	cmd.Flags().StringVar(&file, "config", "", "YAML `file` with settings; see `millrace --help`")
	Titled("logs", func(f *pflag.FlagSet) { logsapi.AddFlags(logging, f) })(cmd.Flags())
	cmd.SetUsageFunc(showSections)
	return cmd
}
