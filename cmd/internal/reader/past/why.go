package past

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/auditlog"
	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

func newWhy() *cobra.Command {
	at, audit, all, q := "", "", false, record.Question{}
	return session.Program{
		Use: "why KIND/NAME", Short: "Show the causes of a change, back to the first one",
		Long: `Explains the last change of an object's desired state: its creation or deletion, its
specification, labels and annotations. --field explains the last change of a field, --last
the last change of any kind, such as a status update. It shows the turn and controller
that made the change, the reason, the versions that the decision was based on, and their
causes, back to the first one: a change that Millrace did not make, such as a user's or a
kubelet's, or one that is no longer kept.

The author of a change is the controller whose recorded turn made it, or else the field
manager whose entry it updated, or else unknown: deletions and the binding of a pod have
no field manager. --audit-log finds their users in the API server's audit log.`,
		Example: "  millrace why pod/web-6d5f7c9b4-x2x7p\n  millrace why deploy/web --field=spec.replicas\n  millrace why rs/web-6d5f7c9b4 --at=15:04:05\n  millrace why pod/web-6d5f7c9b4-x2x7p --audit-log=/var/log/kubernetes/audit.log",
		Args:    cobra.RangeArgs(1, 2),
		Outputs: []string{"tree", "json", "yaml"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&at, "at", at, "`moment` of the explanation: a duration ago, a time, or the resourceVersion to explain (default: now)")
			f.StringVar(&audit, "audit-log", audit, "`file` with the API server's audit log, for the users of deletions and other changes that have no field manager")
			f.BoolVar(&q.Last, "last", q.Last, "explain the last change even if it is only a status report")
			f.StringVar(&q.Field, "field", q.Field, "`path` of the field whose last change is explained, such as spec.replicas")
			f.BoolVar(&q.Reports, "reports", q.Reports, "also follow status reports, such as pods that became ready, back to their causes")
			f.BoolVar(&all, "changes", all, "show all fields that changed, not only those of the explained change")
		},
		Run: func(ctx context.Context, s *session.Session, args []string) error {
			var err error
			if q.At, err = record.ParseMoment(at, s.Now()); err != nil {
				return fmt.Errorf("read --at: %w", err)
			}
			kind, ref, err := s.Object(ctx, args)
			if err != nil {
				return err
			}
			cause, err := record.New(s.Bus).Why(ctx, kind, ref, q)
			if err != nil {
				return err
			}
			if err := auditlog.NameUsers(cause, audit); err != nil {
				return err
			}
			return s.Print(cause, func(p *printer.Paper) { drawWhy(p, cause, all, args) })
		},
	}.Command()
}

// drawWhy draws an explanation.
func drawWhy(p *printer.Paper, cause *record.Cause, all bool, args []string) {
	(&tree{paper: p, all: all}).draw(cause, "", "")
	if began := cause.Began(); began != cause {
		p.Line("")
		p.Line("%s %s %s, %s, at %s", p.In(printer.Bold, "Began with:"), began.Version.Object, began.Version.Event, began.Version.By, printer.Time(began.Version.Time))
	}
	if last := cause.Last; last != nil {
		p.Line("%s @%s, %s, at %s: --last explains that", p.In(printer.Bold, "Changed last:"), last.ResourceVersion, last.By, printer.Time(last.Time))
		p.Changes("   ", telling(*last))
	}
	if f := cause.Fight; f != nil {
		p.Line("%s %s and %s write %s back and forth: %d times in a row it came back to what it was, since %s. Let only one of them set it.",
			p.In(printer.Red, "Fight:"), f.Hands[0], f.Hands[1], strings.Join(f.Fields, ", "), f.Times, printer.Time(f.Since))
	}
	if v := cause.Version; v.Trace != "" {
		p.Line("%s %s: millrace trace %s --rv=%s", p.In(printer.Bold, "Trace:"), v.Trace, strings.Join(args, "/"), v.ResourceVersion)
	}
}

// tree draws causes, each below its effect.
type tree struct {
	paper *printer.Paper
	all   bool
}

func (t *tree) draw(c *record.Cause, lead, rest string) {
	p, v := t.paper, c.Version
	role := ""
	if c.Role != "" {
		role = p.In(printer.Dim, string(c.Role)+": ")
	}
	p.Line("%s%s%s %s %s  %s", lead, role, p.In(printer.Bold, v.Object.String()), p.In(eventColours[v.Event], string(v.Event)),
		p.In(printer.Dim, "@"+v.ResourceVersion+printer.Generation(v.Generation)), p.In(printer.Dim, printer.Time(v.Time)))
	bar := rest + "   "
	if len(c.Causes) > 0 {
		bar = rest + "│  "
	}
	if c.Role == "" || t.all {
		p.Changes(bar, v.Changes)
	} else {
		p.Changes(bar, telling(v))
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
	case c.Note == record.Again:
	case d != nil:
		p.Line("%sby %s, turn %d of %s at %s", bar, p.In(printer.Cyan, d.Controller), d.Turn, d.Key, printer.Time(d.At))
		p.Line("%sbecause: %s", bar, reason(p, d.Because))
		p.Line("%s%s", bar, p.In(printer.Dim, "saw "+sight(d, c.Causes)))
	default:
		drawHand(p, bar, v.By)
	}
	if c.Note != "" {
		p.Line("%s%s", bar, p.In(printer.Dim, c.Note))
	}
	if c.Like > 0 {
		p.Line("%s%s", bar, p.In(printer.Dim, fmt.Sprintf("and %d more like it", c.Like)))
	}
}

// drawHand draws the author of a version that no turn explains.
func drawHand(p *printer.Paper, bar string, by record.Hand) {
	switch {
	case by.Controller != "":
		p.Line("%sby %s, turn %d of %s", bar, p.In(printer.Cyan, by.Controller), by.Turn, by.Key)
	case by.Manager != "":
		p.Line("%sby %s%s", bar, p.In(printer.Green, by.String()), p.In(printer.Dim, ", "+by.Operation))
	}
	if by.User != "" {
		p.Line("%sas user %s%s", bar, p.In(printer.Green, by.User), p.In(printer.Dim, ", in the audit log"))
	}
	for _, remark := range []string{by.Unknown, by.Note} {
		if remark != "" {
			p.Line("%s%s", bar, p.In(printer.Dim, remark))
		}
	}
}

// reason formats why a turn was made: first the reason of its commands, then the further
// reasons.
func reason(p *printer.Paper, because string) string {
	first, also, more := strings.Cut(because, "; ")
	if !more {
		return p.In(printer.Cyan, first)
	}
	return p.In(printer.Cyan, first) + p.In(printer.Dim, "; "+also)
}

// few is how many changed fields are shown for a cause, as opposed to the change in question.
const few = 3

// telling are the most significant changes of a version, at most few: those of the spec,
// or any if the spec has not changed.
func telling(v record.Version) (out []fields.Change) {
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
