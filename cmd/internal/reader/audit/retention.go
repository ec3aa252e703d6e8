package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

func newRetention() *cobra.Command {
	return session.Program{
		Use: "retention", Short: "Show how much of the record is kept, since when, and how large it will be",
		Long: `Shows, for every kind and controller, the limits of age and size of its deltas, turns and
outcomes (--retention, --stream-max-age and --stream-max-bytes of the services), since when
they are on record, and the expected size at the present rate. Existing objects never
expire: they are recorded again before their last message does.`,
		Args:     cobra.NoArgs,
		Complete: func(*session.Session, []string, string) []string { return nil },
		Run: func(ctx context.Context, s *session.Session, _ []string) error {
			kept, err := standing.New(s.Bus).Retention(ctx)
			if err != nil {
				return err
			}
			return s.Print(kept, func(p *printer.Paper) { drawKept(p, kept) })
		},
	}.Command()
}

func drawKept(p *printer.Paper, kept []standing.Stock) {
	if len(kept) == 0 {
		p.Line("%s", p.In(printer.Dim, "nothing is on record yet"))
		return
	}
	rows := make([][]printer.Cell, len(kept))
	var now, full uint64
	for i, k := range kept {
		since, will := "-", k.Full
		if !k.Since.IsZero() {
			since = printer.Time(k.Since)
		}
		rows[i] = printer.Cells(k.Stream, keeps(k.Keeps), fmt.Sprint(k.Messages), size(k.Bytes), since, orUnknown(k.PerDay), reach(k.Reach), orUnknown(k.Full))
		if k.Reach > 0 && k.Reach < k.Keeps.Age {
			rows[i][6].Colour = printer.Yellow // the size bounds it, not the age
		}
		if will == 0 {
			will = k.Bytes
		}
		now, full = now+k.Bytes, full+will
	}
	p.Table([]string{"STREAM", "KEEPS", "MESSAGES", "SIZE", "SINCE", "A DAY", "WILL REACH BACK", "WILL TAKE UP"}, rows)
	p.Line("\n%s now, about %s at this pace, on each server that has a copy", size(now), size(full))
}

// keeps is a retention in the syntax of --retention.
func keeps(r bus.Retention) string {
	switch {
	case r == bus.Retention{}:
		return "while it is there"
	case r.Bytes == 0:
		return reach(r.Age)
	case r.Age == 0:
		return "/" + size(uint64(r.Bytes))
	default:
		return reach(r.Age) + "/" + size(uint64(r.Bytes))
	}
}

// reach formats a long duration, to about a tenth.
func reach(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d%time.Hour == 0 || d > 10*time.Hour:
		return fmt.Sprintf("%dh", d.Round(time.Hour)/time.Hour)
	default:
		return fmt.Sprintf("%dm", d.Round(time.Minute)/time.Minute)
	}
}

func orUnknown(bytes uint64) string {
	if bytes == 0 {
		return "-"
	}
	return size(bytes)
}

// size formats a number of bytes with three digits.
func size(bytes uint64) string {
	scaled, unit := float64(bytes), ""
	for _, next := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if scaled < 1000 {
			break
		}
		scaled, unit = scaled/1024, next
	}
	if scaled >= 100 || scaled == float64(int64(scaled)) {
		return fmt.Sprintf("%.0f%s", scaled, unit)
	}
	return fmt.Sprintf("%.1f%s", scaled, unit)
}
