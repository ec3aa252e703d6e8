package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/handover"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// Bus is a [bus.Bus] on JetStream.
type Bus struct {
	options Options
	conn    *nats.Conn
	js      jetstream.JetStream
	stats   *stats
	// make creates streams and consumers, itself or through the provisioner.
	make maker
	// local passes what is published here to readers of this process; nil: they read it from the
	// server.
	local *handover.Hub

	// handles caches the streams from which single messages have been read.
	handles sync.Map // name -> jetstream.Stream
	listing listing
	// mayNotBackUp is set when the server has refused the right to backups.
	mayNotBackUp atomic.Bool

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

var _ bus.Bus = (*Bus)(nil)

// Connect connects to a server. It waits for the first connection, at most until the context
// ends; from then on nats.go reconnects by itself.
func Connect(ctx context.Context, options Options) (*Bus, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Bus{
		options: options, stats: newStats(),
		closed: make(chan struct{}), mayHaveMissed: make(chan struct{}), waiting: map[*requestGuard]struct{}{},
	}
	if options.Server != nil {
		b.local = options.Server.Handover()
	}
	b.make = direct{b}
	if options.orders {
		b.make = &viaProvisioner{Bus: b}
	}
	if b.conn, err = b.dial(ctx); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if b.js, err = b.newJetStream(); err != nil {
		b.conn.Close()
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	return b, nil
}

// flushTimeout bounds the wait for what is on its way when the bus is closed.
const flushTimeout = time.Second

// dial retries until the context ends, because services and their server often start together.
// It does not wait for a server in this process, which either runs already or never will; but
// that server may be slow to answer, so dial retries after a time-out.
func (b *Bus) dial(ctx context.Context) (*nats.Conn, error) {
	options := b.options.nats(b)
	if end, ends := ctx.Deadline(); ends && b.options.AtOnce {
		options = append(options, nats.Timeout(max(time.Millisecond, min(connectTimeout, time.Until(end)))))
	}
	for attempt := 0; ; attempt++ {
		conn, err := nats.Connect(b.options.URL, options...)
		err = natserr.ExplainTLS(err)
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, natserr.ErrTLS):
			return nil, err
		case b.options.AtOnce && natserr.NoServerReason(err) != nil:
			return nil, fmt.Errorf("%w: %w", natserr.ErrNoServer, natserr.NoServerReason(err))
		case errors.Is(err, nats.ErrAuthorization), b.options.Server != nil && !errors.Is(err, nats.ErrTimeout), !natserr.Pause(ctx, attempt):
			return nil, err
		}
	}
}

func (b *Bus) newJetStream() (jetstream.JetStream, error) {
	options := []jetstream.JetStreamOpt{
		jetstream.WithDefaultTimeout(b.options.Timeout),
	}
	if b.options.APIPrefix != "" {
		return jetstream.NewWithAPIPrefix(b.conn, b.options.APIPrefix, options...)
	}
	return jetstream.New(b.conn, options...)
}

// Healthy is nil while the bus can be used. A permission error stays until the next reconnect,
// because it does not go away by itself.
func (b *Bus) Healthy() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.conn.IsClosed():
		return bus.ErrClosed
	case b.refusal != nil:
		return b.refusal
	case b.conn.IsConnected() && time.Since(b.noProvisionerSince) < noProvisionerFor:
		return natserr.ErrNoProvisioner
	case b.conn.IsConnected():
		return nil
	case b.disconnectErr != nil:
		return fmt.Errorf("disconnected from NATS: %w", b.disconnectErr)
	default:
		return errors.New("disconnected from NATS")
	}
}

// Close ends every reader and publisher and the connection.
func (b *Bus) Close() error {
	b.closeOnce.Do(func() {
		close(b.closed)
		// Deliver the pending acknowledgements to the server: it would redeliver a message
		// whose acknowledgement is lost.
		_ = b.conn.FlushTimeout(flushTimeout)
		b.conn.Close()
	})
	return nil
}

func (b *Bus) onDisconnect(_ *nats.Conn, err error) {
	b.mu.Lock()
	b.disconnectErr = err
	b.mu.Unlock()
	select {
	case <-b.closed:
	default:
		b.options.Log.Warn("disconnected from NATS", "error", err)
	}
}

func (b *Bus) onReconnect(conn *nats.Conn) {
	b.mu.Lock()
	b.refusal, b.disconnectErr = nil, nil
	b.mu.Unlock()
	b.checkReaders()
	b.options.Log.Info("reconnected to NATS", "server", conn.ConnectedUrlRedacted())
}

// onError handles errors that belong to no request.
func (b *Bus) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		b.refuse(err)
	case errors.Is(err, nats.ErrSlowConsumer):
		b.stats.dropped.Inc()
		b.checkReaders()
	}
	b.options.Log.Warn("NATS connection", "error", err)
}

// checkReaders makes every reader check that it has missed no message.
func (b *Bus) checkReaders() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.mayHaveMissed)
	b.mayHaveMissed = make(chan struct{})
}

func (b *Bus) onMayHaveMissed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mayHaveMissed
}

// requestGuard ends a request that the server has refused. The server's error names the subject, never
// the request, so each request registers a word to look for in it.
type requestGuard struct {
	about  string
	cancel context.CancelCauseFunc
}

// guarded returns a context that a refusal cancels, with the refusal as its cause. The caller
// must call the function at the end of the request.
func (b *Bus) guarded(ctx context.Context, about string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &requestGuard{about: about, cancel: cancel}
	b.mu.Lock()
	b.waiting[g] = struct{}{}
	b.mu.Unlock()
	return ctx, func() {
		b.mu.Lock()
		delete(b.waiting, g)
		b.mu.Unlock()
		cancel(nil)
	}
}

func (b *Bus) refuse(err error) {
	b.stats.forbidden.Inc()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusal = &natserr.Refusal{Err: err}
	for g := range b.waiting {
		if strings.Contains(err.Error(), g.about) {
			g.cancel(b.refusal)
		}
	}
}
