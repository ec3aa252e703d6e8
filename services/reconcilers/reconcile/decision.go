package reconcile

import (
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Decision is what a controller wants: why, what, and when to be asked again.
type Decision struct {
	// Because is the reason, a lower-case English phrase that a user may read.
	Because string
	// Commands are everything it wants done.
	Commands []events.Command
	// WakeAt is when to ask again if nothing changes before; zero means never. What is
	// beyond [LatestWake] is then.
	WakeAt time.Time
	// Retry asks for another turn with the key's backoff, although no command
	// failed: something that the controller waits for announces itself by no
	// change.
	Retry bool
	// Sure asks that its reports, too, are made only where it may act: on a view of
	// one moment, when everything done for the key has come back. It is for reports
	// that cannot be put right later, such as sums of what is seen once. Events with no
	// other report go out with the act that they are about, and wait with it.
	Sure bool
	// StatusBlind says that nothing that it does rests on the own object's status, so
	// that it may be done while a report is under way. Only a controller that is
	// StatusBlind is heard.
	StatusBlind bool
	// ReportFirst says that what is to be done next rests on what it reports: its report
	// does not wait for an earlier one, and nothing that acts is stored beside it. The key
	// is asked again on a view in which the report has been seen.
	ReportFirst bool
	// Passing says that what it reports is on its way to something else, and no client
	// waits for each step: where the API server has much to do, that report may wait for
	// longer, and mostly is of more steps then.
	Passing bool
	// Figures are what is worth counting. They are no part of the turn.
	Figures []Figure
}

// LatestWake is the last moment at which anyone is woken: a little before the nanoseconds
// since 1970, in which a NATS server counts, are too many for it.
var LatestWake = time.Date(2261, 1, 1, 0, 0, 0, 0, time.UTC)

// bounded gives the decision with a wake that can be written and scheduled, whatever the
// times of an object are, and the durations that are added to them.
func (d Decision) bounded(now time.Time) Decision {
	switch year := d.WakeAt.UTC().Year(); { // of which a time that has wrapped around has more than it compares as
	case year >= LatestWake.Year():
		d.WakeAt = LatestWake
	case year < 0: // which has no RFC 3339 form
		d.WakeAt = now
	}
	return d
}

// Nothing is the decision to leave things as they are.
func Nothing(because string) Decision { return Decision{Because: because} }

// Wake is the decision to be asked again at a moment.
func Wake(at time.Time, because string) Decision { return Decision{Because: because, WakeAt: at} }

// Do is the decision to have commands carried out.
func Do(because string, commands ...events.Command) Decision {
	return Decision{Because: because, Commands: commands}
}

// Join makes one decision of several: all commands in order, the earliest wake,
// and the reasons of those that do or wait for something, or else the first
// reason. It is blind to the status if all are that do something, passing if all are
// that report something, and reports first if one of them does.
func Join(decisions ...Decision) Decision {
	joined := Decision{StatusBlind: true, Passing: true}
	var reasons []string
	for _, d := range decisions {
		joined.Commands = append(joined.Commands, d.Commands...)
		joined.Figures = append(joined.Figures, d.Figures...)
		joined.Retry = joined.Retry || d.Retry
		joined.Sure = joined.Sure || d.Sure
		joined.ReportFirst = joined.ReportFirst || d.ReportFirst
		joined.StatusBlind = joined.StatusBlind && (d.StatusBlind || !d.acts())
		joined.Passing = joined.Passing && (d.Passing || !d.tells())
		if !d.WakeAt.IsZero() && (joined.WakeAt.IsZero() || d.WakeAt.Before(joined.WakeAt)) {
			joined.WakeAt = d.WakeAt
		}
		if d.Because != "" && (len(d.Commands) > 0 || !d.WakeAt.IsZero() || d.Retry) {
			reasons = append(reasons, d.Because)
		}
	}
	if len(reasons) == 0 {
		for _, d := range decisions {
			if d.Because != "" {
				reasons = append(reasons, d.Because)
				break
			}
		}
	}
	joined.Because = strings.Join(reasons, "; ")
	return joined
}

// acts tells whether it does more than report.
func (d Decision) acts() bool {
	return slices.ContainsFunc(d.Commands, func(c events.Command) bool { return c.Lane() == events.Act })
}

// tells tells whether it reports.
func (d Decision) tells() bool {
	return slices.ContainsFunc(d.Commands, func(c events.Command) bool { return c.Lane() == events.Tell })
}

// In gives the part of the decision that travels in a lane. Figures of no command go
// with what acts, or with the report where nothing does.
func (d Decision) In(lane events.Lane) Decision {
	part, acts := d, d.acts()
	part.Commands, part.Figures = nil, nil
	for _, c := range d.Commands {
		if c.Lane() == lane {
			part.Commands = append(part.Commands, c)
		}
	}
	for _, f := range d.Figures {
		about := func(c events.Command) bool { return c.Ref() == f.Of }
		if f.Of == (events.Ref{}) && acts == (lane == events.Act) || slices.ContainsFunc(part.Commands, about) {
			part.Figures = append(part.Figures, f)
		}
	}
	return part
}
