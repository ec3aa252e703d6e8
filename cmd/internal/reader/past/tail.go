package past

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/record"
)

func newTail() *cobra.Command {
	words, named, since, f := []string(nil), []string(nil), "", record.Filter{}
	return session.Program{
		Use: "tail", Short: "Show deltas, turns and outcomes as they are stored",
		Long: `Shows messages as they are stored: deltas of objects, turns of controllers and their
outcomes, and gaps. With --kind it shows only deltas of these kinds, with --controller
only turns and outcomes of these controllers. --since also shows messages stored since a
moment. It runs until it is interrupted, or for --timeout.`,
		Example: "  millrace tail --since=10m\n  millrace tail --kind=pods --kind=rs -n default\n  millrace tail --controller=replicaset-controller -o json",
		Args:    cobra.NoArgs, Lasting: true, Outputs: []string{"table", "json"},
		Complete: func(*session.Session, []string, string) []string { return nil },
		Flags: func(flags *pflag.FlagSet) {
			flags.StringSliceVar(&words, "kind", words, "`kinds` whose deltas are shown")
			flags.StringSliceVar(&named, "controller", named, "`controllers` whose turns and outcomes are shown")
			flags.StringVar(&since, "since", since, "`moment` to start from: a duration ago, or a time (default: now)")
			flags.StringVar(&f.Name, "name", f.Name, "`name` of the object or key")
		},
		Run: func(ctx context.Context, s *session.Session, _ []string) error {
			if s.Record != "" {
				return fmt.Errorf("nothing more will be stored in %s: tail follows a bus; history and why read a file", s.Record)
			}
			f.Namespace = s.Given()
			for _, word := range words {
				kind, err := s.Kind(ctx, word)
				if err != nil {
					return err
				}
				f.Kinds = append(f.Kinds, kind.Name)
			}
			var err error
			if f.Controllers, err = s.Controllers(ctx, named); err != nil {
				return err
			}
			return tail(ctx, s, f, since)
		},
	}.Command()
}

// tail writes happenings since a moment, if one is given, and then new ones as they are stored.
func tail(ctx context.Context, s *session.Session, f record.Filter, since string) error {
	from, err := s.Bound("--since", since)
	if err != nil {
		return err
	}
	r := record.New(s.Bus)
	told := map[string]uint64{} // by stream, the last sequence that was written
	begun := func() error {
		if !from.IsZero() {
			c, err := r.Chronicle(ctx, f, record.Span{From: from}, everything)
			if err != nil {
				return err
			}
			if !c.Whole {
				s.Note("the first %d are left out: what is shown begins at %s", everything, printer.Time(c.Since))
			}
			for _, h := range slices.Backward(c.Items) {
				if err := happened(s, h); err != nil {
					return err
				}
				told[h.Stream] = max(told[h.Stream], h.Sequence)
			}
		}
		s.Note("waiting for %s; Ctrl-C ends it", awaited(f))
		return nil
	}
	return r.TailFrom(ctx, f, begun, func(h record.Happening) error {
		if h.Sequence <= told[h.Stream] {
			return nil
		}
		return happened(s, h)
	})
}

// awaited describes a filter.
func awaited(f record.Filter) string {
	text := "deltas, turns and outcomes"
	switch {
	case len(f.Kinds) > 0 && len(f.Controllers) > 0:
		text = fmt.Sprintf("changes of %s, and turns and outcomes of %s", listed(f.Kinds), listed(f.Controllers))
	case len(f.Kinds) > 0:
		text = "changes of " + listed(f.Kinds)
	case len(f.Controllers) > 0:
		text = "turns and outcomes of " + listed(f.Controllers)
	}
	if f.Name != "" {
		text += " named " + f.Name
	}
	if f.Namespace != "" {
		return text + " in namespace " + f.Namespace
	}
	return text + " in all namespaces"
}

func happened(s *session.Session, h record.Happening) error {
	if s.Output != "json" {
		happening(s.Paper, h.Time.Local().Format("15:04:05.000"), h)
		return nil
	}
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("write what happened: %w", err)
	}
	s.Paper.Line("%s", text)
	return nil
}

// listed writes names with commas.
func listed[N ~string](names []N) (text string) {
	for i, n := range names {
		if i > 0 {
			text += ", "
		}
		text += string(n)
	}
	return text
}
