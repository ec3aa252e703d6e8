package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/report"
)

// errUnexplained ends `millrace shadow --exit-code` if there are unexplained differences.
var errUnexplained = errors.New("there are differences that nothing explains")

// shadowOptions are the flags of the command.
type shadowOptions struct {
	controllers []string
	since       time.Duration
	differences bool
	examples    int
	code        bool
}

func newShadow() *cobra.Command {
	o := shadowOptions{examples: 3}
	return session.Program{
		Use: "shadow", Short: "Show how far the controllers in shadow agree with kube-controller-manager",
		Long: `Shows, for each controller in shadow (--shadow), how the writes that it decided on compare
with those of kube-controller-manager:

  agreed      the same write, at that moment
  late        the same write, on a view that was a little older or newer
  coalesced   the same result in other steps
  vanished    decided, and its cause disappeared before any write
  unseen      it depends on an answer that only kube-controller-manager got, or on a gap
  we-only     decided all the time, and never written
  kcm-only    written, and never decided
  differs     the write differs from the decision

The last three are unexplained. Examples of them show what each of the two wrote or would
have written, and the turn with what it had seen.`,
		Example:  "  millrace shadow\n  millrace shadow --controller=deployment-controller --differences --examples=20\n  millrace shadow --since=1h --exit-code",
		Args:     cobra.NoArgs,
		Complete: func(*session.Session, []string, string) []string { return nil },
		Flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&o.controllers, "controller", o.controllers, "`controllers` to show (default: all that have been in shadow)")
			f.DurationVar(&o.since, "since", o.since, "only findings of this last period; 0 for all that are kept")
			f.BoolVar(&o.differences, "differences", o.differences, "show only examples of differences, and no table")
			f.IntVar(&o.examples, "examples", o.examples, "number of examples of each kind of difference, the newest ones; 0 for none")
			f.BoolVar(&o.code, "exit-code", o.code, "exit with an error if there are differences")
		},
		Run: func(ctx context.Context, s *session.Session, _ []string) error { return o.run(ctx, s) },
	}.Command()
}

func (o *shadowOptions) run(ctx context.Context, s *session.Session) error {
	names, err := o.names()
	if err != nil {
		return err
	}
	wanted := standing.Compared{Most: o.examples, Show: slices.DeleteFunc(slices.Clone(report.Agreements), report.Agreement.Explained)}
	if o.since > 0 {
		wanted.Since = time.Now().Add(-o.since)
	}
	found, err := standing.New(s.Bus).Parities(ctx, names, wanted)
	if err != nil {
		return err
	}
	if err := s.Print(found, func(p *printer.Paper) { o.draw(p, found) }); err != nil {
		return err
	}
	if o.code && slices.ContainsFunc(found, func(p standing.Parity) bool { return p.Unexplained > 0 }) {
		return errUnexplained
	}
	return nil
}

// names are the controllers to look for, by upstream's names.
func (o *shadowOptions) names() (names []string, err error) {
	for _, name := range o.controllers {
		e, err := resolve.Controller(name)
		if err != nil {
			return nil, fmt.Errorf("read --controller: %w", err)
		}
		names = append(names, e.Name)
	}
	if len(names) > 0 {
		return names, nil
	}
	return controllerNames(), nil
}

func (o *shadowOptions) draw(p *printer.Paper, found []standing.Parity) {
	if len(found) == 0 {
		p.Line("%s", p.In(printer.Dim, "no controller has been in shadow: start one with --shadow"))
		return
	}
	if !o.differences {
		drawParities(p, found)
	}
	for _, parity := range found {
		for _, e := range parity.Examples {
			drawFinding(p, e)
		}
	}
}

func drawParities(p *printer.Paper, found []standing.Parity) {
	head := []string{"CONTROLLER"}
	for _, a := range report.Agreements {
		head = append(head, strings.ToUpper(string(a)))
	}
	rows := make([][]printer.Cell, 0, len(found))
	for _, parity := range found {
		row := printer.Cells(parity.Controller)
		for _, a := range report.Agreements {
			c := printer.Cell{Text: fmt.Sprint(parity.Findings[a])}
			if parity.Findings[a] > 0 && !a.Explained() {
				c.Colour = printer.Red
			}
			row = append(row, c)
		}
		share := printer.Cell{Text: fmt.Sprintf("%.2f %%", parity.Percent()), Colour: printer.Green}
		if parity.Unexplained > 0 {
			share.Colour = printer.Red
		}
		rows = append(rows, append(row, share))
	}
	p.Table(append(head, "EXPLAINED"), rows)
}

func drawFinding(p *printer.Paper, e standing.Example) {
	p.Line("")
	p.Line("%s  %s  %s  %s", printer.Time(e.At), p.In(printer.Red, string(e.Agreement)), p.In(printer.Bold, e.What), p.In(printer.Dim, e.Controller+" "+e.Key.String()))
	if e.Note != "" {
		p.Line("  %s", e.Note)
	}
	for _, d := range e.Differences {
		p.Line("  %s: ours %s, theirs %s, before %s", d.Path, p.In(printer.Yellow, quoted(d.Ours)), p.In(printer.Yellow, quoted(d.Theirs)), quoted(d.Before))
	}
	if e.Delta != nil {
		p.Line("  kube-controller-manager wrote version %s: message %d of %s", e.Version, e.Delta.Sequence, e.Delta.Stream)
	}
	t := e.Decided
	if t == nil {
		p.Line("  %s", p.In(printer.Dim, "no turn wanted anything of the kind"))
		return
	}
	p.Line("  turn %d of the shadow wanted %d writes, because %s", e.Turn, len(t.Commands), t.Because)
	for _, c := range t.Commands {
		p.Line("    %s %v %s", c.Verb, c.Ref(), c.Subresource)
	}
	for _, trigger := range t.Triggers {
		if trigger.Stream != "" {
			p.Line("  it was asked when %v changed: message %d of %s", trigger.Ref, trigger.Sequence, trigger.Stream)
		}
	}
	p.Line("  it saw %s version %s, and %s", t.Kind, t.ResourceVersion, p.In(printer.Dim, seen(t.Seen)))
}

func quoted(value any) string {
	if value == nil {
		return "nothing"
	}
	return fields.Text(value)
}

// seen formats how far the logs had been read.
func seen(at events.Position) string {
	parts := make([]string, 0, len(at))
	for kind, sequence := range at {
		parts = append(parts, fmt.Sprintf("%s up to message %d", kind, sequence))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
