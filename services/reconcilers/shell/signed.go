package shell

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
)

// Signatures sign a loop's turns and verify outcomes. The zero value signs nothing and accepts
// everything.
type Signatures struct {
	// Sign signs every turn that is stored.
	Sign *sign.Signer
	// Outcomes are the writers' keys. An outcome that they do not prove is ignored: the fence
	// stays shut, and the engine stores the turn again in time.
	Outcomes *sign.Trust
	// Turns are the keys of all reconcilers; nil means those that Sign has had. A turn that
	// they do not prove keeps its place in the order, but the engine does not read it, and so
	// never stores it again under its own signature.
	Turns *sign.Trust
	// Refused is told of each outcome that is not proven; may be nil.
	Refused func(m events.Message, err error)
}

// acceptsOutcome reports whether a writer signed an outcome.
func (s Signatures) acceptsOutcome(m events.Message) bool {
	err := s.Outcomes.Outcome(m)
	if err != nil && s.Refused != nil {
		s.Refused(m, err)
	}
	return err == nil
}

// acceptsTurn reports whether a reconciler signed a turn.
func (s Signatures) acceptsTurn(m events.Message) bool {
	if s.Turns != nil {
		return s.Turns.Turn(m, sign.TurnWithin) == nil
	}
	return s.Outcomes != nil && s.Outcomes.History(m) || s.Sign.OwnTurn(m) == nil
}

// Heartbeat verifies that a reconciler has signed a heartbeat, where now is by the clock of the
// bus.
//
// Errors: [sign.ErrUnsigned], [sign.ErrUnproven].
func (s Signatures) Heartbeat(text []byte, now time.Time) error {
	switch {
	case s.Turns != nil:
		return s.Turns.Hint(report.Reconcilers, text, now)
	case s.Outcomes != nil && s.Outcomes.History(events.Message{Time: now}):
		return nil
	default:
		return s.Sign.OwnHint(report.Reconcilers, text, now)
	}
}

// isSigned reports whether a writer signed a heartbeat. A forged one would keep a turn whose
// outcome is lost from being stored again.
func (l *Loop) isSigned(heartbeat []byte) bool {
	return l.settings.Signatures.Outcomes.Hint(report.Writers, heartbeat, l.BusTime()) == nil
}

// SetBusTime records how far the clock of the bus is ahead. The bus stamps the turns by its clock.
// Signing by the same clock keeps the signatures of a process valid whose own clock is wrong.
func (l *Loop) SetBusTime(s bus.State) {
	if !s.Now.IsZero() {
		l.busAhead.Store(int64(s.Now.Sub(l.clock())))
	}
}

// BusTime is the time by the clock of the bus, as far as it is known.
func (l *Loop) BusTime() time.Time { return l.onBus(l.clock()) }

// onBus converts a time by the clock of this process to the clock of the bus.
func (l *Loop) onBus(at time.Time) time.Time { return at.Add(time.Duration(l.busAhead.Load())) }
