package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// LookupTimeout bounds the lookup of a stream or consumer.
const LookupTimeout = 2 * time.Second

// Info looks a stream up; see [Conn.Handle].
func (c *Conn) Info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	handle, err := c.Handle(ctx, name)
	if err != nil {
		return nil, err
	}
	return handle.CachedInfo(), nil
}

// Handle looks a stream up on the server. While the servers elect a new leader, none answers
// for the stream; so Handle repeats the request, which then reaches the new leader, until the
// deadline.
func (c *Conn) Handle(ctx context.Context, name string) (handle jetstream.Stream, err error) {
	request, done := c.Guarded(ctx, name)
	defer done()
	deadline, given := request.Deadline()
	if !given {
		deadline = time.Now().Add(c.Timeout)
	}
	for {
		lookup, end := context.WithTimeout(request, min(LookupTimeout, c.Timeout))
		handle, err = c.Led(lookup, name)
		end()
		again := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, natserr.ErrNotLed) && natserr.Pause(request, 0)
		if !again || request.Err() != nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, natserr.Translate(request, err))
	}
	return handle, nil
}

// Led looks a stream up, and accepts only the answer of the stream's leader. For ten seconds
// after its start a server also answers for the streams that it was chosen to lead at their
// creation. A server that has lost its disk does so too, and reports too early an end for those
// streams.
func (c *Conn) Led(ctx context.Context, name string) (jetstream.Stream, error) {
	handle, err := c.JetStream.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	info := handle.CachedInfo()
	if in := info.Cluster; info.Config.Replicas > 1 && in != nil {
		// A leader lists the other replicas, and not itself.
		others := slices.ContainsFunc(in.Replicas, func(p *jetstream.PeerInfo) bool { return p.Name == in.Leader })
		if in.Leader == "" || len(in.Replicas) == 0 || others {
			return nil, fmt.Errorf("look up stream %s: %w", name, natserr.ErrNotLed)
		}
	}
	return handle, nil
}
