package shell

import (
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Figures are measured by the replica that made the decision. Those that wait for
// what becomes of a turn wait in its lane; one that another replica has gone past, or
// that this one had before it was restarted, is not measured.

// measure tells what counts when a part of a decision is stored, and keeps what counts
// later.
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

// tellFigures tells what counts now that it is known what became of this engine's last turn.
func (d *Engine) tellFigures(l *lane, o events.Outcome) {
	if o.Turn < l.journey.turn {
		return
	}
	for _, f := range l.figures {
		if l.journey.turn != o.Turn || done(o, f.Of) == f.Failed {
			continue
		}
		if f.Took {
			f.Value = d.took(l, o).Seconds()
		}
		d.settings.Measured(f)
	}
	l.figures = nil
}

// done tells whether everything was done that a turn wanted of an object.
func done(o events.Outcome, ref events.Ref) bool {
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

// gauge tells what a decision says for gauges.
func (d *Engine) gauge(key events.Key, figures []reconcile.Figure) {
	if len(d.gauges) == 0 || d.settings.Shared == nil {
		return
	}
	d.settings.Shared(key, slices.DeleteFunc(slices.Clone(figures), func(f reconcile.Figure) bool { return !d.gauges[f.Metric] }))
}
