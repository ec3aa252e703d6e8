package past

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/record"
)

func newHistory() *cobra.Command {
	limit, kept := 20, false
	return session.Program{
		Use: "history [KIND/NAME]", Short: "Show every version of an object: when, what changed, and who changed it",
		Long: `Shows the recorded versions of an object, newest last, also of a deleted one: when, what
changed, and who changed it, which is the field manager, or Millrace's controller with the
reason of its turn. Objects that had the same name one after the other are distinguished
by their uids. Gaps, in which versions may be missing, are shown too. Without an object it
shows what happened in the namespace: changes of all objects, turns of controllers and
their outcomes.`,
		Example: "  millrace history deploy/web\n  millrace history pod/web-6d5f7c9b4-x2x7p --limit=0 -o yaml\n  millrace history -n shop --limit=100",
		Args:    cobra.RangeArgs(0, 2),
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&limit, "limit", limit, "number of versions to show, the newest ones; 0 for all")
			f.BoolVar(&kept, "kept", kept, "also show when an unchanged object was recorded again so that it does not expire")
		},
		Run: func(ctx context.Context, s *session.Session, args []string) error {
			if len(args) == 0 {
				return timeline(ctx, s, limit)
			}
			kind, ref, err := s.Object(ctx, args)
			if err != nil {
				return err
			}
			h, err := record.New(s.Bus).History(ctx, kind, ref, limit)
			if err != nil {
				return err
			}
			if !kept {
				h.Versions = without(h.Versions, record.Kept)
			}
			return s.Print(h, func(p *printer.Paper) { drawHistory(p, h) })
		},
	}.Command()
}

func without(versions []record.Version, event record.Event) []record.Version {
	var out []record.Version
	for _, v := range versions {
		if v.Event != event {
			out = append(out, v)
		}
	}
	return out
}

var eventColours = map[record.Event]printer.Colour{
	record.Created: printer.Green, record.Changed: printer.Yellow, record.Leaving: printer.Red, record.Ended: printer.Red, record.Found: printer.Cyan, record.Kept: printer.Dim,
}

func drawHistory(p *printer.Paper, h *record.History) {
	for _, doubt := range h.Doubts {
		p.Line("%s", p.In(printer.Red, "... what was before cannot be read: "+doubt))
	}
	if h.More {
		p.Line("%s", p.In(printer.Dim, "... there are older versions: --limit=0 shows all"))
	} else if len(h.Versions) > 0 && h.Versions[0].Event != record.Created {
		p.Line("%s", p.In(printer.Dim, "... the record of "+string(h.Object.Kind)+" begins at "+printer.Time(h.Begins)+"; what was before is not kept"))
	}
	gaps := h.Gaps
	uid := ""
	for _, v := range h.Versions {
		for len(gaps) > 0 && gaps[0].Sequence < v.Sequence {
			p.Line("%s", p.In(printer.Red, "GAP  "+gaps[0].String()))
			gaps = gaps[1:]
		}
		if uid != string(v.UID) {
			uid = string(v.UID)
			p.Line("%s", p.In(printer.Bold, h.Object.String()+"  uid "+uid))
		}
		if v.Left != nil {
			p.Line("%s", p.In(printer.Red, fmt.Sprintf("LEFT OUT  %d versions of %d bytes: the object was written faster than is recorded (--object-bound)", v.Left.Versions, v.Left.Bytes)))
		}
		p.Line("%s  %s  %s  %s", printer.Time(v.Time), p.In(eventColours[v.Event], string(v.Event)), p.In(printer.Bold, v.By.String()), p.In(printer.Dim, "@"+v.ResourceVersion+printer.Generation(v.Generation)))
		drawReason(p, "    ", v.By)
		p.Changes("    ", v.Changes)
	}
	for _, g := range gaps {
		p.Line("%s", p.In(printer.Red, "GAP  "+g.String()))
	}
}

func drawReason(p *printer.Paper, indent string, by record.Hand) {
	switch {
	case by.Because != "":
		p.Line("%sbecause: %s%s", indent, reason(p, by.Because), p.In(printer.Dim, fmt.Sprintf(" (turn %d of %s)", by.Turn, by.Key)))
	case by.Controller != "":
		p.Line("%s%s", indent, p.In(printer.Cyan, fmt.Sprintf("turn %d of %s, which is not kept any more", by.Turn, by.Key)))
	case by.Unknown != "":
		p.Line("%s%s", indent, p.In(printer.Dim, by.Unknown))
	case by.Note != "":
		p.Line("%s%s", indent, p.In(printer.Dim, by.Note))
	}
}
