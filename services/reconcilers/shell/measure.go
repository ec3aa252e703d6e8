package shell

import (
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The replica that made a decision measures its figures. Figures that wait for a turn's outcome
// wait in its lane. A figure is not measured if another replica has stored a later turn, or if
// this replica was restarted since the decision.

// measure reports the figures that count when a part of a decision is stored, and keeps those
// that count later.
func (d *Engine) measure(l *lane, figures []reconcile.Figure) {
	l.figures = nil
	if d.settings.Measured == nil {
		return
	}
	for _, f := range figures {
		switch {
		case d.gauges[f.Metric]:
		case f.Of == (events.Ref{}):
			d.settings.Measured(f)
		default:
			l.figures = append(l.figures, f)
		}
	}
}

// reportFigures reports the figures that count now that the outcome of this engine's last turn is
// known.
func (d *Engine) reportFigures(l *lane, o events.Outcome) {
	if o.Turn < l.stages.turn {
		return
	}
	for _, f := range l.figures {
		if l.stages.turn != o.Turn || allDone(o, f.Of) == f.Failed {
			continue
		}
		if f.Took {
			f.Value = d.turnDuration(l, o).Seconds()
		}
		d.settings.Measured(f)
	}
	l.figures = nil
}

// allDone reports whether all commands of a turn for an object succeeded, at least one.
func allDone(o events.Outcome, ref events.Ref) bool {
	found := false
	for _, r := range o.Results {
		if r.Ref == ref {
			if !r.OK() {
				return false
			}
			found = true
		}
	}
	return found
}

// reportGauges reports a decision's gauges.
func (d *Engine) reportGauges(key events.Key, figures []reconcile.Figure) {
	if len(d.gauges) == 0 || d.settings.Shared == nil {
		return
	}
	d.settings.Shared(key, slices.DeleteFunc(slices.Clone(figures), func(f reconcile.Figure) bool { return !d.gauges[f.Metric] }))
}
