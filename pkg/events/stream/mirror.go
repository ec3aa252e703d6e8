package stream

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A mirror requests its source 100 to 200 ms after its restore. The server restores many
// streams at a time, and the log of a busy kind can take longer than its state. The server then
// refuses the mirror, and lets it ask again only after 12 s; no API call makes a mirror of a
// standalone server ask sooner. So where that has happened, Serve stops all streams and
// restores them once more, one by one in the order of their names: every log (EV_) before the
// first state (STATE_). It admits no client before that, since a stream that is not restored
// yet seems not to exist.
const (
	// mirrorPatience bounds the wait for the mirrors to connect, which usually takes 0.2 s.
	mirrorPatience = 2 * time.Second
	mirrorPoll     = 10 * time.Millisecond
)

// connectMirrors connects the mirrors. If some stay disconnected, the server serves all the
// same: they connect later by themselves.
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

// restoreInOrder restores all streams one by one. Until the next start, the server then counts
// the streams' reserved storage (LogBytes) twice. If that would leave no room for new streams,
// restoreInOrder does nothing, and the mirrors wait.
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
	// Without a task queue the account restores one stream after the other; nil limits keep
	// those that the account had.
	return account.EnableJetStream(nil, nil)
}

// awaitMirrors waits until each mirror is connected to its source, and returns those that the
// server refused or that took too long.
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

// mirrors are the mirrors that the server refused, and those that still wait for an answer. A
// mirror whose source does not exist waits for nothing.
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

// streams are the streams that the server has; none before it has created the first one.
func (s *Server) streams() ([]server.StreamDetail, error) {
	account, err := s.nats.JszAccount(&server.JSzOptions{Account: s.options.account(), Streams: true})
	if err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	return account.Streams, nil
}
