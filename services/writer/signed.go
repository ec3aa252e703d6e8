package writer

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/report"
)

// The right to publish on the writers' topic makes no process a writer. So a writer signs its
// heartbeats with the key for outcomes. Where there are keys, a heartbeat without a good signature
// is ignored: its claims delay no turn, and no turns are left to its sender.

// signHeartbeat signs a heartbeat. It uses this machine's clock until the bus's is known: no other
// writer would believe a signature without a time.
func (s *Service) signHeartbeat(text []byte) []byte {
	now := s.time.now()
	if !s.time.known() {
		now = time.Now()
	}
	return s.config.Sign.Hint(report.Writers, text, now)
}

// signedHeartbeat reports whether a writer has signed a heartbeat. It believes every heartbeat until
// the clock of the bus is known; until then this writer takes no turns.
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
		s.config.Log.Error("ignored a writer's heartbeat without a trusted signature", "err", err)
	})
	return false
}

func (s *Service) heartbeatProven(text []byte) error {
	now := s.time.now()
	if s.config.Outcomes != nil {
		return s.config.Outcomes.Hint(report.Writers, text, now)
	}
	if s.config.Turns != nil && s.config.Turns.History(events.Message{Time: now}) {
		return nil
	}
	return s.config.Sign.OwnHint(report.Writers, text, now)
}
