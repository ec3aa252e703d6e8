package pending

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

func newParked() *cobra.Command {
	return session.Program{
		Use: "parked", Short: "Show the keys that were parked because their turns failed again and again",
		Long: `Shows the keys that controllers have parked after several failed attempts, with the
reason. A later change of an object that the key reads retries it; if the retry stored a
turn, its reason is shown. A retry that decided to do nothing is not recorded.`,
		Args:     cobra.NoArgs,
		Complete: func(*session.Session, []string, string) []string { return nil },
		Run: func(ctx context.Context, s *session.Session, _ []string) error {
			parked, err := standing.New(s.Bus).Parked(ctx)
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
