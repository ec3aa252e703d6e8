package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/handover"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// Options are those of a connection.
type Options struct {
	// Timeout bounds requests whose context has no deadline.
	Timeout time.Duration
	// APIPrefix replaces "$JS.API" where JetStream is imported from another account.
	APIPrefix string
	// Intervals are those at which the connection and its server check on each other.
	Intervals Intervals
	// Hub passes what is published here to readers of this process; nil: they read it from the
	// server.
	Hub *handover.Hub
	Log *slog.Logger
}

// Conn is a connection to a bus.
type Conn struct {
	Options
	// NATS and JetStream are the clients; they are set before the first request.
	NATS      *nats.Conn
	JetStream jetstream.JetStream
	Stats     *Stats

	closed    chan struct{}
	closeOnce sync.Once

	mu sync.Mutex
	// refusal is the last error about this connection's permissions.
	refusal error
	// noProvisionerSince is when a request last found no provisioner; zero: the last request found one.
	noProvisionerSince time.Time
	// disconnectErr is the reason why the connection is down.
	disconnectErr error
	// mayHaveMissed is closed, and replaced, when deliveries may have been lost: after
	// a reconnect, or when this process was too slow to read.
	mayHaveMissed chan struct{}
	// waiting are the requests that a refusal can end.
	waiting map[*requestGuard]struct{}
}

// ConsumerMaker creates consumers, and deletes those of readers.
type ConsumerMaker interface {
	Consumer(ctx context.Context, o settings.Consumer) (jetstream.Consumer, error)
	Leave(stream, consumer string)
}

// New is a connection that is not made yet: its clients are missing.
func New(o Options) *Conn {
	return &Conn{
		Options: o, Stats: newStats(),
		closed: make(chan struct{}), mayHaveMissed: make(chan struct{}), waiting: map[*requestGuard]struct{}{},
	}
}

// flushTimeout bounds the wait for what is on its way when the connection is closed.
const flushTimeout = time.Second

// Handlers are the options with which the client tells the connection about disconnects and errors.
func (c *Conn) Handlers() []nats.Option {
	return []nats.Option{
		nats.ErrorHandler(c.onError),
		nats.DisconnectErrHandler(c.onDisconnect),
		nats.ReconnectHandler(c.onReconnect),
	}
}

// Healthy is nil while the connection can be used. A permission error stays until the next
// reconnect, because it does not go away by itself.
func (c *Conn) Healthy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.NATS.IsClosed():
		return bus.ErrClosed
	case c.refusal != nil:
		return c.refusal
	case c.NATS.IsConnected() && time.Since(c.noProvisionerSince) < noProvisionerFor:
		return natserr.ErrNoProvisioner
	case c.NATS.IsConnected():
		return nil
	case c.disconnectErr != nil:
		return fmt.Errorf("disconnected from NATS: %w", c.disconnectErr)
	default:
		return errors.New("disconnected from NATS")
	}
}

// noProvisionerFor is for how long [Conn.Healthy] reports a missing provisioner. A service orders a
// missing stream again within [natserr.LongPause]. When it stops ordering, another service has had the
// stream created, and the provisioner is no longer needed.
const noProvisionerFor = 3 * natserr.LongPause

// NoteProvisioner remembers whether there is a provisioner, for [Conn.Healthy]: err is the result of a
// request to it.
func (c *Conn) NoteProvisioner(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noProvisionerSince = (time.Time{}); errors.Is(err, nats.ErrNoResponders) {
		c.noProvisionerSince = time.Now()
	}
}

// Close ends every request and reader, and the connection.
func (c *Conn) Close() {
	c.closeOnce.Do(func() {
		close(c.closed)
		// Deliver the pending acknowledgements to the server: it would redeliver a message
		// whose acknowledgement is lost.
		_ = c.NATS.FlushTimeout(flushTimeout)
		c.NATS.Close()
	})
}

// Closed is a channel that is closed with the connection.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

func (c *Conn) onDisconnect(_ *nats.Conn, err error) {
	c.mu.Lock()
	c.disconnectErr = err
	c.mu.Unlock()
	select {
	case <-c.closed:
	default:
		c.Log.Warn("disconnected from NATS", "error", err)
	}
}

func (c *Conn) onReconnect(conn *nats.Conn) {
	c.mu.Lock()
	c.refusal, c.disconnectErr = nil, nil
	c.mu.Unlock()
	c.CheckReaders()
	c.Log.Info("reconnected to NATS", "server", conn.ConnectedUrlRedacted())
}

// onError handles errors that belong to no request.
func (c *Conn) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		c.refuse(err)
	case errors.Is(err, nats.ErrSlowConsumer):
		c.Stats.Dropped.Inc()
		c.CheckReaders()
	}
	c.Log.Warn("NATS connection", "error", err)
}

// CheckReaders makes every reader check that it has missed no message.
func (c *Conn) CheckReaders() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.mayHaveMissed)
	c.mayHaveMissed = make(chan struct{})
}

// MayHaveMissed is a channel that is closed when deliveries may have been lost from now on.
func (c *Conn) MayHaveMissed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mayHaveMissed
}
