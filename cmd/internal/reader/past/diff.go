package past

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/diff"
)

func newDiff() *cobra.Command {
	d := differing{}
	return session.Program{
		Use: "diff [KIND/NAME|KIND[,KIND...]] --from=MOMENT", Short: "Show what changed in an object, a kind or a namespace between two moments",
		Long: `Shows the fields of an object that differ between two moments: a duration ago (10m, 2d),
a time, or a resourceVersion. For a kind, or by default for all namespaced kinds, it shows
the objects of the namespace that were created, deleted, replaced or changed.`,
		Example: "  millrace diff deploy/web --from=1h\n  millrace diff deploy/web --from=81723 --to=81911\n  millrace diff pods --from=10m\n  millrace diff -n shop --from=15:04 --to=15:10",
		Args:    cobra.MaximumNArgs(2),
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&d.from, "from", d.from, "first `moment`: a duration ago, a time, or a resourceVersion")
			f.StringVar(&d.to, "to", d.to, "second `moment` (default: now)")
			f.BoolVarP(&d.every, "all-namespaces", "A", d.every, "objects of all namespaces")
		},
		Run: func(ctx context.Context, s *session.Session, args []string) error {
			if d.from == "" {
				return errors.New("--from is missing: name the moment to compare with, such as --from=10m")
			}
			if len(args) == 0 || len(args) == 1 && !strings.Contains(args[0], "/") {
				return d.many(ctx, s, args)
			}
			kind, ref, err := s.Object(ctx, args)
			if err != nil {
				return err
			}
			return d.one(ctx, s, kind, ref)
		},
	}.Command()
}

// one compares one object.
func (d *differing) one(ctx context.Context, s *session.Session, kind kinds.Kind, ref events.Ref) error {
	moments, err := d.moments(s)
	if err != nil {
		return err
	}
	answer, err := diff.Compare(ctx, record.New(s.Bus), kind, ref, moments[0], moments[1])
	if err != nil {
		return err
	}
	err = s.Print(answer, func(p *printer.Paper) {
		p.Line("%s  %s", p.In(printer.Bold, ref.String()), p.In(printer.Dim, "@"+answer.From+" -> @"+answer.To))
		if answer.Replaced {
			p.Line("%s", p.In(printer.Red, "another object has the name: the uid is not the same"))
		}
		if len(answer.Changes) == 0 {
			p.Line("%s", p.In(printer.Dim, "nothing differs"))
		}
		p.Changes("", answer.Changes)
	})
	if err == nil && len(answer.Doubts) > 0 {
		err = fmt.Errorf("%w: %s", ErrDoubt, strings.Join(answer.Doubts, "; "))
	}
	return err
}
