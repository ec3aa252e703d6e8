package embedded

import (
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/stream/handover"
)

// outsiderCheck is how often the server looks whether other processes that may publish are still
// connected.
const outsiderCheck = 5 * time.Second

// local is what concerns the publishers and readers of this process alone.
type local struct {
	hub *handover.Hub // nil: other servers or users may publish at any time

	mu         sync.Mutex
	suspension int         // the number of the present suspension
	check      *time.Timer // runs while the hub is suspended
	stopped    bool
}

// hub makes the hub of a server on which all other processes that may publish are known: those of
// another server's connections, and the users of accounts, are not.
func (o Options) hub() *handover.Hub {
	if o.clustered() || o.Accounts != "" {
		return nil
	}
	return handover.New()
}

// Handover is where the publishers of this process hand over what they have stored to its readers.
// It is suspended while a process is connected that may publish, too; nil where the server
// cannot know that.
func (s *Server) Handover() *handover.Hub { return s.local.hub }

// noteOutsider suspends the handing over: another process connects, and may publish as soon as it is
// admitted.
func (s *Server) noteOutsider() {
	if s.local.hub == nil {
		return
	}
	s.local.mu.Lock()
	defer s.local.mu.Unlock()
	s.local.suspension = s.local.hub.Suspend()
	s.checkOutsiders()
}

// checkOutsiders sets the timer of the next check. The caller holds the mutex.
func (s *Server) checkOutsiders() {
	if s.local.check == nil && !s.local.stopped {
		s.local.check = time.AfterFunc(outsiderCheck, s.resume)
	}
}

// resume ends the suspension if no other process is connected that may publish.
func (s *Server) resume() {
	s.local.mu.Lock()
	suspension := s.local.suspension // an outsider who connects from here on begins another
	s.local.check = nil
	s.local.mu.Unlock()
	connected := s.hasOutsiders()
	s.local.mu.Lock()
	defer s.local.mu.Unlock()
	if connected || s.local.suspension != suspension {
		s.checkOutsiders()
		return
	}
	s.local.hub.Resume(suspension)
}

// hasOutsiders reports whether another process is connected that may publish.
func (s *Server) hasOutsiders() bool {
	const all = 1 << 16
	found, err := s.nats.Connz(&server.ConnzOptions{Username: true, Limit: all})
	if err != nil {
		return true
	}
	for _, c := range found.Conns {
		if net.ParseIP(c.IP) != nil && c.Account != guestAccount {
			return true
		}
	}
	return false
}

// stopChecks ends the checks for good.
func (s *Server) stopChecks() {
	s.local.mu.Lock()
	defer s.local.mu.Unlock()
	if s.local.stopped = true; s.local.check != nil {
		s.local.check.Stop()
	}
}
