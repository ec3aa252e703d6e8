package stream

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A mirror asks for its source 100 to 200 ms after it has been restored. The
// server restores many streams at a time, and the log of a busy kind can take
// longer than its state. The mirror is refused then, and the server lets it ask
// again only after 12 s; nothing in the API of a server that stands alone makes
// it ask sooner. So where that has happened the streams are stopped and restored
// once more, one after the other in the order of their names: every log (EV_)
// before the first state (STATE_). No client is let in before that is done, since a
// stream that is not restored yet looks as if it did not exist.
const (
	// mirrorPatience is how long the mirrors may take to be connected, which is
	// a matter of 0.2 s.
	mirrorPatience = 2 * time.Second
	mirrorPoll     = 10 * time.Millisecond
)

// connectMirrors sees to it that the mirrors are connected. A server whose
// mirrors stay away serves all the same: they will come by themselves.
func (s *Server) connectMirrors() error {
	late, err := s.awaitMirrors()
	if err != nil || len(late) == 0 {
		return err
	}
	s.options.Log.Info("mirrors were restored before their logs: restoring in order", "streams", strings.Join(late, ","))
	if err := s.restoreInOrder(); err != nil {
		return fmt.Errorf("restore the streams in order: %w", err)
	}
	if late, err = s.awaitMirrors(); len(late) > 0 {
		s.options.Log.Warn("mirrors are late", "streams", strings.Join(late, ","))
	}
	return err
}

// restoreInOrder costs what the streams have reserved (LogBytes) a second time,
// since the server counts it again, until the next start. Where that would leave
// no room for new streams, the mirrors had better wait.
func (s *Server) restoreInOrder() error {
	_, reserved, err := s.nats.JetStreamReservedResources()
	if err != nil || reserved > s.nats.JetStreamConfig().MaxStore/4 {
		return err
	}
	account, err := s.nats.LookupAccount(s.options.account())
	if err != nil {
		return err
	}
	if err := account.DisableJetStream(); err != nil {
		return err
	}
	// No queue of tasks means one after the other; no limits are those that the
	// account had.
	return account.EnableJetStream(nil, nil)
}

// awaitMirrors waits until each mirror is connected to its source, and gives
// those that were refused or took too long.
func (s *Server) awaitMirrors() (late []string, err error) {
	patience := time.NewTimer(mirrorPatience)
	defer patience.Stop()
	poll := time.NewTicker(mirrorPoll)
	defer poll.Stop()
	for {
		refused, waiting, err := s.mirrors()
		if err != nil || len(waiting) == 0 {
			return refused, err
		}
		select {
		case <-patience.C:
			return append(refused, waiting...), nil
		case <-poll.C:
		}
	}
}

// mirrors are those that were refused, and those that have not been answered.
// One whose source does not exist has nothing to wait for.
func (s *Server) mirrors() (refused, waiting []string, err error) {
	streams, err := s.streams()
	if err != nil {
		return nil, nil, err
	}
	served := map[string]bool{}
	for _, stream := range streams {
		served[stream.Name] = true
	}
	for _, stream := range streams {
		switch mirror := stream.Mirror; {
		case mirror == nil, !served[mirror.Name]:
		case mirror.Error != nil:
			refused = append(refused, stream.Name)
		case mirror.Active < 0:
			waiting = append(waiting, stream.Name)
		}
	}
	return refused, waiting, nil
}

// streams are those that are served; none before the first one is made.
func (s *Server) streams() ([]server.StreamDetail, error) {
	account, err := s.nats.JszAccount(&server.JSzOptions{Account: s.options.account(), Streams: true})
	if err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	return account.Streams, nil
}
