package writer

import (
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Who may publish on the topic of the writers is not a writer by that. So a writer signs its
// heartbeats with the key for outcomes, and where there are keys, one without a good signature
// counts as not said: what it claims delays no turn.

// signHeartbeat signs a heartbeat, by this machine's clock until that of the bus is known:
// without any time no other writer would believe it.
func (s *Service) signHeartbeat(text []byte) []byte {
	now := s.time.now()
	if !s.time.known() {
		now = time.Now()
	}
	return s.config.Sign.Hint(events.Writers, text, now)
}

// provesHeartbeat tells whether another writer has said a heartbeat. Before the clock of the bus is
// known no turn is taken, and each is believed.
func (s *Service) provesHeartbeat(b events.Beat, text []byte) bool {
	if !s.time.known() {
		return true
	}
	err := s.heartbeatProven(text)
	if err == nil {
		return true
	}
	s.metrics.strange.Inc()
	if s.foreign.tells(time.Now()) {
		s.config.Log.Error("a process says which turns it has in flight, and no trusted writer has signed that; it counts as not said", "by", b.Writer, "err", err)
	}
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

// foreign bounds how often the log tells of heartbeats that count as not said.
type foreign struct {
	mu   sync.Mutex
	told time.Time
}

// foreignEvery is how often it does, at most.
const foreignEvery = 10 * time.Second

func (f *foreign) tells(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.told.IsZero() && now.Sub(f.told) < foreignEvery {
		return false
	}
	f.told = now
	return true
}
