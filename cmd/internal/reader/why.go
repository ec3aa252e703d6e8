package reader

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record"
)

func newWhy() *cobra.Command {
	at, field, all, reports := "", "", false, false
	return Program{
		Use: "why KIND/NAME", Short: "Show the causes of a change, back to where it began",
		Long: `Explains the last change of an object, the last one at a moment, or the last one of a
field: which turn of which controller made it, for what reason, on which versions that
was decided, and what led to those, back to the first cause, which is a change that no
controller of ours made: a user's, a node's, or one that is kept no more.`,
		Example: "  millrace why pod/web-6d5f7c9b4-x2x7p\n  millrace why deploy/web --field=spec.replicas\n  millrace why rs/web-6d5f7c9b4 --at=15:04:05",
		Args:    cobra.RangeArgs(1, 2),
		Outputs: []string{"tree", "json", "yaml"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&at, "at", at, "`moment` whose last change is explained: so long ago, a time, or a resourceVersion (default now)")
			f.StringVar(&field, "field", field, "`path` of a field: its last change is explained, such as spec.replicas")
			f.BoolVar(&reports, "reports", reports, "follow also reports of what is seen, such as that pods became ready, back to where they came from")
			f.BoolVar(&all, "changes", all, "show all fields that changed, not only those of the change that is explained")
		},
		Run: func(ctx context.Context, s *Session, args []string) error {
			when, err := record.ParseMoment(at, s.Now())
			if err != nil {
				return fmt.Errorf("read --at: %w", err)
			}
			kind, ref, err := s.Object(ctx, args)
			if err != nil {
				return err
			}
			cause, err := record.New(s.Bus).Why(ctx, kind, ref, when, field, reports)
			if err != nil {
				return err
			}
			return s.Print(cause, func(p *Paper) {
				(&tree{paper: p, all: all}).draw(cause, "", "")
				if began := cause.Began(); began != cause {
					p.Line("")
					p.Line("%s %s %s, %s, at %s", p.In(Bold, "Began with:"), began.Version.Object, began.Version.Event, began.Version.By, moment(began.Version.Time))
				}
				if f := cause.Fight; f != nil {
					p.Line("%s %s and %s write %s back and forth: %d times in a row it came back to what it was, since %s. Let only one of them set it.",
						p.In(Red, "Fight:"), f.Hands[0], f.Hands[1], strings.Join(f.Fields, ", "), f.Times, moment(f.Since))
				}
				if v := cause.Version; v.Trace != "" {
					p.Line("%s %s: millrace trace %s --rv=%s", p.In(Bold, "Trace:"), v.Trace, strings.Join(args, "/"), v.ResourceVersion)
				}
			})
		},
	}.Command()
}

// tree draws causes, each below what it led to.
type tree struct {
	paper *Paper
	all   bool
}

func (t *tree) draw(c *record.Cause, lead, rest string) {
	p, v := t.paper, c.Version
	role := ""
	if c.Role != "" {
		role = p.In(Dim, string(c.Role)+": ")
	}
	p.Line("%s%s%s %s %s  %s", lead, role, p.In(Bold, v.Object.String()), p.In(eventColours[v.Event], string(v.Event)),
		p.In(Dim, "@"+v.ResourceVersion+generation(v.Generation)), p.In(Dim, moment(v.Time)))
	bar := rest + "   "
	if len(c.Causes) > 0 {
		bar = rest + "│  "
	}
	if c.Role == "" || t.all {
		drawChanges(p, bar, v.Changes)
	} else {
		drawChanges(p, bar, telling(v))
	}
	t.who(c, bar)
	for i, behind := range c.Causes {
		if i+1 < len(c.Causes) {
			t.draw(behind, rest+"├─ ", rest+"│  ")
		} else {
			t.draw(behind, rest+"└─ ", rest+"   ")
		}
	}
}

func (t *tree) who(c *record.Cause, bar string) {
	p, v := t.paper, c.Version
	switch d := c.Decision; {
	case d != nil:
		p.Line("%sby %s, turn %d of %s at %s", bar, p.In(Cyan, d.Controller), d.Turn, d.Key, moment(d.At))
		p.Line("%sbecause: %s", bar, p.In(Cyan, d.Because))
		p.Line("%s%s", bar, p.In(Dim, "saw "+sight(d, c.Causes)))
	case v.By.Unknown != "":
		p.Line("%s%s", bar, p.In(Dim, v.By.Unknown))
	default:
		p.Line("%sby %s%s", bar, p.In(Green, v.By.String()), p.In(Dim, operation(v.By)))
	}
	if c.Note != "" {
		p.Line("%s%s", bar, p.In(Dim, c.Note))
	}
	if c.Like > 0 {
		p.Line("%s%s", bar, p.In(Dim, fmt.Sprintf("and %d more like it", c.Like)))
	}
}

func operation(by record.Hand) string {
	if by.Controller != "" || by.Operation == "" {
		return ""
	}
	return ", " + by.Operation
}

// few is how many fields of a change are shown that is not what was asked about.
const few = 3

// telling are the changes of a version that say most about it: what is wanted
// before what is seen.
func telling(v record.Version) (out changes) {
	for _, c := range v.Changes {
		if strings.HasPrefix(c.Path, "spec") {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		out = v.Changes
	}
	return out[:min(len(out), few)]
}

func drawStanding(p *Paper, s *record.Standing) {
	p.Line("%s and %s", p.In(Bold, s.Controller), p.In(Bold, s.Key.String()))
	if o := s.Object; o != nil {
		p.Line("the object: %s @%s%s, %s", o.Event, o.ResourceVersion, generation(o.Generation), moment(o.Time))
	} else {
		p.Line("the object: none is on record")
	}
	drawStall(p, s.Stalled)
	drawUnwatched(p, s.Unwatched)
	p.Line("has looked: %s", looked(s))
	for _, t := range s.Turns {
		drawTurn(p, t, s.Object)
	}
	if len(s.Turns) == 0 {
		p.Line("turns:      none is on record: it has never wanted anything of this key, as far as is kept")
	}
	if s.Wake == nil {
		p.Line("looks again: with the next change of anything that it reads")
		return
	}
	p.Line("looks again: at %s: %s", p.In(Cyan, moment(s.Wake.At)), s.Wake.Because)
}

func looked(s *record.Standing) string {
	switch l := s.Looked; {
	case l == nil:
		return "it does not read this kind"
	case s.Object != nil && l.Answered >= l.Position:
		return "yes, and all that it was asked has been answered"
	case l.Pending == 0:
		return fmt.Sprintf("up to message %d, and nothing waits for it", l.Answered)
	default:
		return fmt.Sprintf("up to message %d; the object's newest is %d, and %d wait for an answer", l.Answered, l.Position, l.Pending)
	}
}

func drawTurn(p *Paper, t record.Last, object *record.Version) {
	p.Line("last %s turn %d at %s: %s (%d commands)", t.Lane, t.Turn, moment(t.At), p.In(Cyan, t.Because), t.Commands)
	if object != nil && t.ResourceVersion != "" && t.ResourceVersion != object.ResourceVersion {
		p.Line("   %s", p.In(Dim, fmt.Sprintf("saw @%s%s; the object has changed since", t.ResourceVersion, generation(t.Generation))))
	}
	switch {
	case t.Trouble != "":
		p.Line("   %s", p.In(Red, t.Trouble))
	case t.Lane == events.Park:
		p.Line("   %s", p.In(Red, "set aside: see millrace parked"))
	case t.Outcome == nil:
		p.Line("   %s", p.In(Yellow, "no outcome yet: it is with the writer, or will be stored again"))
	default:
		p.Line("   outcome at %s:%s", moment(t.Outcome.At), record.Counts(t.Outcome.Results))
		if t.Outcome.Failure != "" {
			p.Line("   %s", p.In(Red, t.Outcome.Failure))
		}
	}
}
