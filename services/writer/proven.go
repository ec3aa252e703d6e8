package writer

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Who may publish on the topic of the writers is not a writer by that. So a writer signs its
// heartbeats with the key for outcomes, and where there are keys, one without a good signature
// counts as not said: what it claims delays no turn, and no turns are left to it.

// signHeartbeat signs a heartbeat, by this machine's clock until that of the bus is known:
// without any time no other writer would believe it.
func (s *Service) signHeartbeat(text []byte) []byte {
	now := s.time.now()
	if !s.time.known() {
		now = time.Now()
	}
	return s.config.Sign.Hint(events.Writers, text, now)
}

// signedHeartbeat tells whether a writer has signed a heartbeat. Before the clock of the bus is
// known no turn is taken, and each is believed.
func (s *Service) signedHeartbeat(text []byte) bool {
	if !s.time.known() {
		return true
	}
	err := s.heartbeatProven(text)
	if err == nil {
		return true
	}
	s.metrics.strange.Inc()
	s.unsigned.Do(func() {
		s.config.Log.Error("a process speaks as a writer on the bus, and no trusted writer has signed what it says; it counts as not said", "err", err)
	})
	return false
}

func (s *Service) heartbeatProven(text []byte) error {
	now := s.time.now()
	if s.config.Outcomes != nil {
		return s.config.Outcomes.Hint(events.Writers, text, now)
	}
	if s.config.Turns != nil && s.config.Turns.History(events.Message{Time: now}) {
		return nil
	}
	return s.config.Sign.OwnHint(events.Writers, text, now)
}
