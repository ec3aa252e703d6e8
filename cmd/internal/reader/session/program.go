package session

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/settings"
)

// Program is one command that reads the record.
type Program struct {
	Use, Short, Long, Example string
	Args                      cobra.PositionalArgs
	// Flags adds the command's own flags; may be nil.
	Flags func(*pflag.FlagSet)
	// Outputs are the values of --output, the default first; one that ends in "=" takes
	// an argument. nil: table, json and yaml.
	Outputs []string
	// Lasting commands have no time-out by default; Patience is another default than a minute.
	Lasting  bool
	Patience time.Duration
	// Recordless commands read no record and need no bus: their sessions have none.
	Recordless bool
	// Writes is true for a command that changes the bus.
	Writes bool
	// Complete completes the arguments; nil: with kinds and names.
	Complete func(s *Session, args []string, toComplete string) []string
	Run      func(ctx context.Context, s *Session, args []string) error
}

// patience is the default of --timeout.
const patience = time.Minute

// args checks the number of arguments; its error shows the usage.
func (p Program) args(cmd *cobra.Command, args []string) error {
	if p.Args == nil || p.Args(cmd, args) == nil {
		return nil
	}
	return fmt.Errorf("write millrace %s; millrace %s --help shows examples", p.Use, cmd.Name())
}

// writes is whether the program has an output; for "jsonpath=" the prefix decides.
func (p Program) writes(output string) bool {
	return slices.ContainsFunc(p.Outputs, func(known string) bool {
		return output == known || strings.HasSuffix(known, "=") && strings.HasPrefix(output, known)
	})
}

// Command makes the subcommand. Before Run, it fills the flags from the environment and
// --config, and connects to the bus.
func (p Program) Command() *cobra.Command {
	if p.Outputs == nil {
		p.Outputs = []string{"table", "json", "yaml"}
	}
	o, file := &Options{Source: connect.Source{Connection: connect.Connection{URL: connect.LocalBus, Writes: p.Writes}}, Output: p.Outputs[0], Color: "auto", Timeout: cmp.Or(p.Patience, patience), recordless: p.Recordless}, ""
	if p.Lasting {
		o.Timeout = 0
	}
	cmd := &cobra.Command{
		Use: p.Use, Short: p.Short, Long: p.Long, Example: p.Example, Args: p.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := settings.Fill(cmd.Flags(), file, os.LookupEnv); err != nil {
				return err
			}
			if !p.writes(o.Output) {
				return fmt.Errorf("read --output: %q is none of %s", o.Output, strings.Join(p.Outputs, ", "))
			}
			return o.with(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), func(ctx context.Context, s *Session) error { return p.Run(ctx, s, args) })
		},
	}
	o.add(cmd.Flags(), p.Outputs)
	cmd.Flags().StringVar(&file, "config", "", "YAML `file` with settings; see `millrace --help`")
	if p.Flags != nil {
		p.Flags(cmd.Flags())
	}
	complete := p.Complete
	if complete == nil {
		complete = (*Session).completeObject
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) (found []string, _ cobra.ShellCompDirective) {
		o.complete(cmd, file, func(s *Session) { found = complete(s, args, word) })
		directive := cobra.ShellCompDirectiveNoFileComp
		if len(found) == 1 && strings.HasSuffix(found[0], "/") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return found, directive
	}
	values := p.Outputs
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}
