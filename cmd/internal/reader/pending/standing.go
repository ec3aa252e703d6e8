package pending

import (
	"fmt"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/report"
)

func drawStanding(p *printer.Paper, s *standing.Standing) {
	p.Line("%s and %s", p.In(printer.Bold, s.Controller), p.In(printer.Bold, s.Key.String()))
	if o := s.Object; o != nil {
		p.Line("the object: %s @%s%s, %s", o.Event, o.ResourceVersion, printer.Generation(o.Generation), printer.Time(o.Time))
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
	p.Line("looks again: at %s: %s", p.In(printer.Cyan, printer.Time(s.Wake.At)), s.Wake.Because)
}

func looked(s *standing.Standing) string {
	switch l := s.Looked; {
	case l == nil:
		return "no reconcilers read this kind"
	case s.Object != nil && l.Answered >= l.Position:
		return "yes, and all that it was asked has been answered"
	case l.Pending == 0:
		return fmt.Sprintf("up to message %d, and nothing waits for it", l.Answered)
	default:
		return fmt.Sprintf("up to message %d; the object's newest is %d, and %d wait for an answer", l.Answered, l.Position, l.Pending)
	}
}

func drawTurn(p *printer.Paper, t standing.Last, object *record.Version) {
	p.Line("last %s turn %d at %s: %s (%d commands)", t.Lane, t.Turn, printer.Time(t.At), p.In(printer.Cyan, t.Because), t.Commands)
	if object != nil && t.ResourceVersion != "" && t.ResourceVersion != object.ResourceVersion {
		p.Line("   %s", p.In(printer.Dim, fmt.Sprintf("saw @%s%s; the object has changed since", t.ResourceVersion, printer.Generation(t.Generation))))
	}
	switch {
	case t.Trouble != "":
		p.Line("   %s", p.In(printer.Red, t.Trouble))
	case t.Lane == events.LanePark.String():
		p.Line("   %s", p.In(printer.Red, "set aside: see millrace parked"))
	case t.Outcome == nil:
		p.Line("   %s", p.In(printer.Yellow, "no outcome yet: it is with the writer, or will be stored again"))
	default:
		p.Line("   outcome at %s:%s", printer.Time(t.Outcome.At), record.Counts(t.Outcome.Results))
		if t.Outcome.Failure != "" {
			p.Line("   %s", p.In(printer.Red, t.Outcome.Failure))
		}
	}
}

// drawUnwatched prints that a kind cannot be watched, and what to do about it.
func drawUnwatched(p *printer.Paper, u *report.Unwatched) {
	if u == nil {
		return
	}
	p.Line("%s: %s", p.In(printer.Red, fmt.Sprintf("%s has not been watched since %s", u.Kind, printer.Time(u.Since))), u.Reason)
	p.Line("   %s", p.In(printer.Dim, "give the watcher the right to list and watch it, or look into its log"))
}

// drawStall prints that a controller decides nothing, and what to do about it.
func drawStall(p *printer.Paper, s *report.Stall) {
	if s == nil {
		return
	}
	what := fmt.Sprintf("%s decides nothing", s.Controller)
	if s.Condition != report.NotRunning {
		what = fmt.Sprintf("%s has work and has decided nothing since %s", s.Controller, printer.Time(s.Since))
	}
	p.Line("%s: %s", p.In(printer.Red, what), s)
	p.Line("   %s", p.In(printer.Dim, s.Condition.Advice()))
}
