package reader

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// changes is short for the functions that draw changes.
type changes = []fields.Change

func newTail() *cobra.Command {
	words, named, since, f := []string(nil), []string(nil), "", record.Filter{}
	return Program{
		Use: "tail", Short: "Show deltas, turns and outcomes as they are stored",
		Long: `Shows messages as they are stored: deltas of objects, turns of controllers and their
outcomes, and gaps. With --kind it shows only deltas of these kinds, with --controller
only turns and outcomes of these controllers. --since also shows messages stored since a
moment. It runs until it is interrupted, or for --timeout.`,
		Example: "  millrace tail --since=10m\n  millrace tail --kind=pods --kind=rs -n default\n  millrace tail --controller=replicaset-controller -o json",
		Args:    cobra.NoArgs, Lasting: true, Outputs: []string{"table", "json"},
		Complete: func(*Session, []string, string) []string { return nil },
		Flags: func(flags *pflag.FlagSet) {
			flags.StringSliceVar(&words, "kind", words, "`kinds` whose deltas are shown")
			flags.StringSliceVar(&named, "controller", named, "`controllers` whose turns and outcomes are shown")
			flags.StringVar(&since, "since", since, "`moment` to start from: a duration ago, or a time (default: now)")
			flags.StringVar(&f.Name, "name", f.Name, "`name` of the object or key")
		},
		Run: func(ctx context.Context, s *Session, _ []string) error {
			if s.Record != "" {
				return fmt.Errorf("nothing more will be stored in %s: tail follows a bus; history and why read a file", s.Record)
			}
			f.Namespace = s.given
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
			return s.tail(ctx, f, since)
		},
	}.Command()
}

func newLag() *cobra.Command {
	every := false
	return Program{
		Use: "lag", Short: "Show how far controllers and writers are behind the streams",
		Args:     cobra.NoArgs,
		Complete: func(*Session, []string, string) []string { return nil },
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&every, "all", every, "also show controllers and writers that are not behind, and the streams")
		},
		Run: func(ctx context.Context, s *Session, _ []string) error {
			lags, err := record.New(s.Bus).Lags(ctx)
			if err != nil {
				return err
			}
			workers := 0
			for _, l := range lags {
				if l.Stream != "" && l.Consumer != "" {
					workers++
				}
			}
			if !every {
				lags = slices.DeleteFunc(lags, func(l record.Lag) bool { return l.Behind == 0 && l.Stream != "" })
			}
			return s.Print(lags, func(p *printer.Paper) {
				if len(lags) == 0 {
					p.Line("no consumer is behind: all %d have answered everything", workers)
					return
				}
				drawLags(p, lags)
			})
		},
	}.Command()
}

// drawUnwatched prints that a kind cannot be watched, and what to do about it.
func drawUnwatched(p *printer.Paper, u *events.Unwatched) {
	if u == nil {
		return
	}
	p.Line("%s: %s", p.In(printer.Red, fmt.Sprintf("%s has not been watched since %s", u.Kind, printer.Time(u.Since))), u.Reason)
	p.Line("   %s", p.In(printer.Dim, "give the watcher the right to list and watch it, or look into its log"))
}

// drawStall prints that a controller decides nothing, and what to do about it.
func drawStall(p *printer.Paper, s *events.Stall) {
	if s == nil {
		return
	}
	what := fmt.Sprintf("%s decides nothing", s.Controller)
	if s.Condition != events.NotRunning {
		what = fmt.Sprintf("%s has work and has decided nothing since %s", s.Controller, printer.Time(s.Since))
	}
	p.Line("%s: %s", p.In(printer.Red, what), s)
	p.Line("   %s", p.In(printer.Dim, s.Condition.Advice()))
}

func drawLags(p *printer.Paper, lags []record.Lag) {
	for len(lags) > 0 && lags[0].Stream == "" { // they come first
		drawStall(p, lags[0].Stalled)
		drawUnwatched(p, lags[0].Unwatched)
		lags = lags[1:]
	}
	if len(lags) == 0 {
		return
	}
	rows := make([][]printer.Cell, len(lags))
	for i, l := range lags {
		who, behind := l.Consumer, printer.Cell{Text: fmt.Sprint(l.Behind), Colour: printer.Green}
		if who == "" {
			who, behind.Text = "-", "-"
		}
		if l.Behind > 0 {
			behind.Colour = printer.Yellow
		}
		stored := "-"
		if !l.Stored.IsZero() {
			stored = printer.Time(l.Stored)
		}
		row := printer.Cells(l.Stream, who, fmt.Sprint(l.Last), "", fmt.Sprint(l.Again), stored, ago(l.Active))
		row[3] = behind
		rows[i] = row
	}
	p.Table([]string{"STREAM", "WHO", "LAST", "BEHIND", "AGAIN", "NEWEST STORED", "LAST DELIVERY"}, rows)
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}

func newParked() *cobra.Command {
	return Program{
		Use: "parked", Short: "Show the keys that were parked because their turns failed again and again",
		Long: `Shows the keys that controllers have parked after several failed attempts, with the
reason. A later change of an object that the key reads retries it; if the retry stored a
turn, its reason is shown. A retry that decided to do nothing is not recorded.`,
		Args:     cobra.NoArgs,
		Complete: func(*Session, []string, string) []string { return nil },
		Run: func(ctx context.Context, s *Session, _ []string) error {
			parked, err := record.New(s.Bus).Parked(ctx)
			if err != nil {
				return err
			}
			return s.Print(parked, func(p *printer.Paper) {
				if len(parked) == 0 {
					p.Line("%s", p.In(printer.Dim, "nothing has been set aside, as far as is kept"))
					return
				}
				rows := make([][]printer.Cell, len(parked))
				for i, k := range parked {
					rows[i] = printer.Cells(k.Controller, k.Key.String(), printer.Time(k.At), printer.Shorten(k.Reason), k.Since)
				}
				p.Table([]string{"CONTROLLER", "KEY", "SET ASIDE", "REASON", "DECIDED SINCE"}, rows)
			})
		},
	}.Command()
}
