package shell

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/sign"
)

// Signatures are what a loop signs its turns with and believes outcomes by. The zero value
// signs nothing and believes everything.
type Signatures struct {
	// Sign signs every turn that is stored.
	Sign *sign.Signer
	// Outcomes are the writers' keys. An outcome that they do not prove is none: the fence
	// stays shut, and the turn is stored again in time.
	Outcomes *sign.Trust
	// Turns are the keys of all reconcilers; nil means those that Sign has had. A turn that
	// they do not prove has its place in the order, but what it says is not read, and so
	// never stored again under a signature of ours.
	Turns *sign.Trust
	// Refused is told of each outcome that does not count; may be nil.
	Refused func(m events.Message, err error)
}

// believes tells whether an outcome is one.
func (s Signatures) believes(m events.Message) bool {
	err := s.Outcomes.Outcome(m)
	if err != nil && s.Refused != nil {
		s.Refused(m, err)
	}
	return err == nil
}

// ours tells whether a turn is a reconciler's.
func (s Signatures) ours(m events.Message) bool {
	if s.Turns != nil {
		return s.Turns.Turn(m, sign.TurnWithin) == nil
	}
	return s.Outcomes != nil && s.Outcomes.History(m) || s.Sign.OwnTurn(m) == nil
}

// Heartbeat tells whether a reconciler has signed a heartbeat, now by the clock of the bus.
//
// Errors: [sign.ErrUnsigned], [sign.ErrUnproven].
func (s Signatures) Heartbeat(text []byte, now time.Time) error {
	switch {
	case s.Turns != nil:
		return s.Turns.Hint(events.Reconcilers, text, now)
	case s.Outcomes != nil && s.Outcomes.History(events.Message{Time: now}):
		return nil
	default:
		return s.Sign.OwnHint(events.Reconcilers, text, now)
	}
}

// proves tells whether a writer has said what it has in flight. What no writer has signed
// would keep a turn whose outcome is lost from being stored again.
func (l *Loop) proves(heartbeat []byte) bool {
	return l.engine.settings.Signatures.Outcomes.Hint(events.Writers, heartbeat, l.BusTime()) == nil
}

// tick takes in what time it is by the clock of the bus, which stamps the turns: they are
// signed by the same clock, so that a process whose own is wrong is believed all the same.
func (l *Loop) tick(s bus.State) {
	if !s.Now.IsZero() {
		l.ahead.Store(int64(s.Now.Sub(l.clock())))
	}
}

// BusTime is the time by the clock of the bus, as far as it is known.
func (l *Loop) BusTime() time.Time { return l.clock().Add(time.Duration(l.ahead.Load())) }

// unproven leaves the turns out that are a forger's: of what was put behind a turn that is
// under way, the refusal must not say that it is done. The key is recalled instead, and
// finds a turn without an outcome, which is stored again with nothing in it once it has
// waited for long enough.
func (d *Engine) unproven(e *entry, l *lane, o events.Outcome) bool {
	if !o.Forged() || o.Turn == l.turn {
		return false
	}
	e.doubt()
	return true
}
