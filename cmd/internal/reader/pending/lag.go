package pending

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

func newLag() *cobra.Command {
	every := false
	return session.Program{
		Use: "lag", Short: "Show how far controllers and writers are behind the streams",
		Args:     cobra.NoArgs,
		Complete: func(*session.Session, []string, string) []string { return nil },
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&every, "all", every, "also show controllers and writers that are not behind, and the streams")
		},
		Run: func(ctx context.Context, s *session.Session, _ []string) error {
			lags, err := standing.New(s.Bus).Lags(ctx)
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
				lags = slices.DeleteFunc(lags, func(l standing.Lag) bool { return l.Behind == 0 && l.Stream != "" })
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

func drawLags(p *printer.Paper, lags []standing.Lag) {
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
