package reconcile

import (
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Decision is what a controller wants: why, which commands, and when to ask it again.
type Decision struct {
	// Because is the reason, a lower-case English phrase that a user may read.
	Because string
	// Commands are the changes and questions that the controller requests.
	Commands []events.Command
	// WakeAt is when to ask again if nothing changes before; zero means never. A time
	// beyond [LatestWake] becomes LatestWake.
	WakeAt time.Time
	// Retry asks for another turn with the key's back-off although no command failed,
	// because no change will announce what the controller waits for.
	Retry bool
	// Sure says that the engine may store its reports, too, only when the controller may
	// act: on a consistent view, after everything done for the key has come back. It is
	// for reports that cannot be corrected later, such as sums of what is seen once.
	// Events without another report wait for the write that they are about, and go out with
	// it.
	Sure bool
	// StatusBlind says that no command of the decision depends on the status of the key's
	// own object, so that the engine may store it while a report is in flight. The engine
	// ignores it unless the controller is StatusBlind.
	StatusBlind bool
	// ReportFirst says that the next write depends on what this decision reports. The report
	// does not wait for an earlier one, and the engine stores no command that acts beside
	// it. The engine asks again on a view that includes the report.
	ReportFirst bool
	// Passing says that the reported status is an intermediate one and that no client
	// waits for each step. When the API server is busy, the engine may delay such a
	// report, which mostly combines several steps.
	Passing bool
	// Figures are values to count. The stored turn does not hold them.
	Figures []Figure
}

// LatestWake is the latest wake time: a little before the nanoseconds since 1970 exceed
// the range in which a NATS server counts.
var LatestWake = time.Date(2261, 1, 1, 0, 0, 0, 0, time.UTC)

// bounded limits the wake time to one that can be encoded and scheduled, whatever the
// times of an object and the durations added to them are.
func (d Decision) bounded(now time.Time) Decision {
	switch year := d.WakeAt.UTC().Year(); { // compare years, because a time that wrapped around compares as smaller than it is
	case year >= LatestWake.Year():
		d.WakeAt = LatestWake
	case year < 0: // which has no RFC 3339 form
		d.WakeAt = now
	}
	return d
}

// Nothing returns the decision to change nothing.
func Nothing(because string) Decision { return Decision{Because: because} }

// Wake returns the decision to be asked again at a moment.
func Wake(at time.Time, because string) Decision { return Decision{Because: because, WakeAt: at} }

// Do returns the decision to carry out commands.
func Do(because string, commands ...events.Command) Decision {
	return Decision{Because: because, Commands: commands}
}

// Join combines decisions: all commands in order, the earliest wake time, and the reasons
// of the decisions that do or wait for something, or else the first reason. The result is
// StatusBlind if all decisions that act are, Passing if all that report are, and
// ReportFirst if any is.
func Join(decisions ...Decision) Decision {
	joined := Decision{StatusBlind: true, Passing: true}
	var reasons []string
	for _, d := range decisions {
		joined.Commands = append(joined.Commands, d.Commands...)
		joined.Figures = append(joined.Figures, d.Figures...)
		joined.Retry = joined.Retry || d.Retry
		joined.Sure = joined.Sure || d.Sure
		joined.ReportFirst = joined.ReportFirst || d.ReportFirst
		joined.StatusBlind = joined.StatusBlind && (d.StatusBlind || !d.writes())
		joined.Passing = joined.Passing && (d.Passing || !d.reports())
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

// writes reports whether the decision has a command in the write lane.
func (d Decision) writes() bool {
	return slices.ContainsFunc(d.Commands, func(c events.Command) bool { return c.Lane() == events.LaneWrite })
}

// reports tells whether the decision has a command in the status lane.
func (d Decision) reports() bool {
	return slices.ContainsFunc(d.Commands, func(c events.Command) bool { return c.Lane() == events.LaneStatus })
}

// In returns the part of the decision that belongs to a lane. A figure of no command goes
// with the write lane, or with the report if nothing acts.
func (d Decision) In(lane events.Lane) Decision {
	part, writes := d, d.writes()
	part.Commands, part.Figures = nil, nil
	for _, c := range d.Commands {
		if c.Lane() == lane {
			part.Commands = append(part.Commands, c)
		}
	}
	for _, f := range d.Figures {
		about := func(c events.Command) bool { return c.Ref() == f.Of }
		if f.Of == (events.Ref{}) && writes == (lane == events.LaneWrite) || slices.ContainsFunc(part.Commands, about) {
			part.Figures = append(part.Figures, f)
		}
	}
	return part
}
