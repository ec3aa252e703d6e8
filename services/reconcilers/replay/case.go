package replay

import (
	"encoding/json"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Verdict is the result of one turn's replay.
type Verdict string

const (
	// Same: this code decides the same, byte for byte.
	Same Verdict = "same"
	// Differs: this code decides something else on what the turn saw.
	Differs Verdict = "differs"
	// Unjudged: what the turn saw cannot be rebuilt, and Why says what is missing.
	Unjudged Verdict = "unjudged"
)

// Why is the reason why a turn cannot be judged.
type Why string

// The reasons.
const (
	// Unread: the turn cannot be read.
	Unread Why = "the turn cannot be read"
	// Foreign: this code does not have the controller, or cannot build it from the
	// recorded settings.
	Foreign Why = "this code cannot make the controller"
	// Expired: the record begins after what the turn saw, or has lost a part of it.
	Expired Why = "the record does not have all that the turn saw"
	// Apart: the turn's view was of no single moment of the logs, or the logs are not
	// those that it was folded from.
	Apart Why = "what the turn saw is of no one moment of the logs"
	// Unheard: an outcome that the turn knew is no longer stored.
	Unheard Why = "an outcome that the turn knew is not on record"
	// Earlier: this code decides something else, and used the last heartbeat of an object
	// that had changed without one. A reader that began at that version knew of no earlier
	// heartbeat, and the record does not say where a reader began.
	Earlier Why = "when an object was last heard depends on where the reader began"
	// Older: the turn comes from a version that did not record which outcomes it knew, and
	// with those that it may have known this code decides something else.
	Older Why = "the version that decided did not record what it knew"
)

// Case is a recorded turn, and the result of its replay.
type Case struct {
	Controller string      `json:"controller"`
	Sequence   uint64      `json:"turn"`
	Stored     time.Time   `json:"stored"`
	Turn       events.Turn `json:"recorded"`
	Verdict    Verdict     `json:"verdict"`
	Why        Why         `json:"why,omitempty"`
	// Detail explains Why.
	Detail string `json:"detail,omitempty"`
	// Now is what this code decides if it is not the same; nil if the controller was not
	// asked.
	Now *events.Turn `json:"now,omitempty"`
	// Broken is how this code failed, if it gave no decision.
	Broken string `json:"broken,omitempty"`
	// View is what the turn saw, and Decision the whole decision of this code on it, if
	// [Options] asked for them.
	View     json.RawMessage    `json:"-"`
	Decision reconcile.Decision `json:"-"`
}

// rebuilt is the turn as this code decides it.
func (c *Case) rebuilt(d reconcile.Decision) *events.Turn {
	part := d.In(c.Turn.Lane)
	t := &events.Turn{
		Controller: c.Turn.Controller, Key: c.Turn.Key, Lane: c.Turn.Lane,
		Because: part.Because, Commands: part.Commands,
	}
	if !part.WakeAt.IsZero() {
		t.WakeAt = &part.WakeAt
	}
	t.Pack()
	return t
}

// Decision is the decision of a turn, with bodies and notices in each command.
func Decision(t events.Turn) reconcile.Decision {
	d := reconcile.Decision{Because: t.Because}
	for _, c := range t.Commands {
		c.Body, c.OnApplied, c.OnFailed = t.BodyOf(c), t.NoticeAt(c.Applied), t.NoticeAt(c.Failed)
		c.Shape, c.Applied, c.Failed = 0, 0, 0
		d.Commands = append(d.Commands, c)
	}
	if t.WakeAt != nil {
		d.WakeAt = *t.WakeAt
	}
	return d
}

// Summary counts what was replayed.
type Summary struct {
	Turns    int         `json:"turns"`
	Same     int         `json:"same"`
	Differ   int         `json:"differ"`
	Unjudged map[Why]int `json:"unjudged,omitempty"`
	// Parks counts records of parked keys, which hold no decision.
	Parks int `json:"parks,omitempty"`
	// Deltas counts the folded deltas, Outcomes the outcomes that were read.
	Deltas   int `json:"deltas"`
	Outcomes int `json:"outcomes"`
	// Passes is how often the logs were read; 1 unless replicas were far apart.
	Passes int `json:"passes"`
	// From and To are when the first and the last turn were stored.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
}

// Judged is how many turns were the same or differ.
func (s Summary) Judged() int { return s.Same + s.Differ }

func (s *Summary) count(c Case) {
	s.Turns++
	if s.From.IsZero() || c.Stored.Before(s.From) {
		s.From = c.Stored
	}
	if c.Stored.After(s.To) {
		s.To = c.Stored
	}
	switch c.Verdict {
	case Same:
		s.Same++
	case Differs:
		s.Differ++
	default:
		if s.Unjudged == nil {
			s.Unjudged = map[Why]int{}
		}
		s.Unjudged[c.Why]++
	}
}
