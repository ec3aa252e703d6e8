package reader

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/cmd/internal/settings"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Options are the flags of every command that reads the record.
type Options struct {
	connect.Source
	Namespace string
	given     string // the namespace of the flag
	Output    string
	Color     string
	Timeout   time.Duration // of the whole command; 0: none

	recordless bool
}

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

func (o *Options) add(f *pflag.FlagSet, outputs []string) {
	if !o.recordless {
		o.Source.Add(f)
	}
	f.StringVarP(&o.Namespace, "namespace", "n", o.Namespace, "namespace (default that of the kubeconfig's context)")
	f.StringVarP(&o.Output, "output", "o", o.Output, "output format: "+strings.Join(outputs, ", "))
	f.StringVar(&o.Color, "color", o.Color, "colours: auto (on a terminal), always or never")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of the command; 0 for none")
}

// with opens a session and closes it.
func (o *Options) with(ctx context.Context, out, notes io.Writer, do func(context.Context, *Session) error) error {
	paper, err := printer.NewPaper(out, o.Color)
	if err != nil {
		return err
	}
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	s := &Session{Options: *o, Paper: paper, Notes: notes}
	if !o.recordless {
		b, done, err := o.Source.Open(ctx, connect.Patience)
		if err != nil {
			return err
		}
		defer func() { _ = done() }() // the session only reads
		s.Bus = b
	}
	s.given = s.Namespace
	if s.Namespace == "" {
		s.Namespace = contextNamespace()
	}
	err = s.elsewhere(ctx, do(ctx, s))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return fmt.Errorf("no answer within %v: --timeout gives it more (%w)", o.Timeout, err)
	}
	return err
}

// contextNamespace is the namespace of the kubeconfig's current context, as for kubectl.
func contextNamespace() string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).Namespace()
	if err != nil || namespace == "" {
		return "default"
	}
	return namespace
}

// Session is one run of a command.
type Session struct {
	Options
	Bus   bus.Archive
	Paper *printer.Paper
	// Notes receives remarks that are not part of the answer.
	Notes io.Writer

	kinds     []kinds.Kind
	asked     events.Ref // the object that the arguments name
	askedKind kinds.Kind
}

// Given is the namespace of the flag; empty if it was not set.
func (s *Session) Given() string { return s.given }

// Now is the time that relative times count back from: for a file, its end.
func (s *Session) Now() time.Time {
	if f, is := s.Bus.(*archive.File); is {
		return f.About().Exported.Local()
	}
	return time.Now()
}

// Kinds are the kinds on record.
func (s *Session) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if s.kinds == nil {
		found, err := s.Bus.Kinds(ctx)
		if err != nil {
			return nil, fmt.Errorf("look which kinds are on record: %w", err)
		}
		s.kinds = found
	}
	return s.kinds, nil
}

// Controllers resolves words to names of controllers, by name or alias. It accepts controllers
// with turns on record, and others.
//
// Errors: a word names no controller, or one that has nothing on record; the error has similar
// names.
func (s *Session) Controllers(ctx context.Context, words []string, others ...string) (names []string, err error) {
	if len(words) == 0 {
		return nil, nil
	}
	have, err := s.Bus.Controllers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which controllers are on record: %w", err)
	}
	have = append(have, others...)
	for _, word := range words {
		if slices.Contains(have, word) {
			names = append(names, word)
			continue
		}
		e, err := resolve.Controller(word)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read --controller: %w", err)
		case !slices.Contains(have, e.Name):
			return nil, fmt.Errorf("the record has nothing of %s: it has not run, or what it did is not kept any more; millrace lag --all lists the %d that are on record", e.Name, len(have))
		}
		names = append(names, e.Name)
	}
	return names, nil
}

// Kind finds the kind that a word names; see [resolve.Kind].
func (s *Session) Kind(ctx context.Context, word string) (kinds.Kind, error) {
	have, err := s.Kinds(ctx)
	if err != nil {
		return kinds.Kind{}, err
	}
	return resolve.Kind(word, have)
}

// Object finds the object that the arguments name: KIND/NAME or KIND NAME, in the
// session's namespace if the kind is namespaced.
func (s *Session) Object(ctx context.Context, args []string) (kinds.Kind, events.Ref, error) {
	word, name, slash := strings.Cut(strings.Join(args, "/"), "/")
	if !slash || name == "" || strings.Contains(name, "/") {
		example := "write KIND/NAME, such as deploy/web"
		if found := s.called(ctx, word); !slash && len(found) > 0 {
			example = "write KIND/NAME" + resolve.Meant(found)
		}
		return kinds.Kind{}, events.Ref{}, fmt.Errorf("%q names no object: %s", strings.Join(args, " "), example)
	}
	kind, err := s.Kind(ctx, word)
	if err != nil {
		return kinds.Kind{}, events.Ref{}, err
	}
	ref := events.Ref{Kind: kind.Name, Name: name}
	if kind.Namespaced {
		ref.Namespace = s.Namespace
	}
	s.asked, s.askedKind = ref, kind
	return kind, ref, nil
}

// Print writes an answer as JSON or YAML if --output asks for it, otherwise with people.
func (s *Session) Print(answer any, people func(*printer.Paper)) error {
	switch s.Output {
	case "json":
		text, err := json.MarshalIndent(answer, "", "  ")
		if err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		s.Paper.Line("%s", text)
	case "yaml":
		text, err := yaml.Marshal(answer)
		if err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		s.Paper.Line("%s", strings.TrimSuffix(string(text), "\n"))
	default:
		people(s.Paper)
	}
	return nil
}

// Note writes a remark that is not part of the answer.
func (s *Session) Note(format string, args ...any) {
	fmt.Fprintf(s.Notes, format+"\n", args...)
}
