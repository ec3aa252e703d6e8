package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/internal/follow"
	"github.com/millrace/millrace/pkg/events/stream/internal/listing"
	"github.com/millrace/millrace/pkg/events/stream/internal/lookup"
	"github.com/millrace/millrace/pkg/events/stream/internal/passage"
	"github.com/millrace/millrace/pkg/events/stream/internal/provision"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// Bus is a [bus.Bus] on JetStream.
type Bus struct {
	options Options
	on      *conn.Conn
	listing *listing.Listing
	// provision creates streams and consumers for services; make creates those of this process, itself or
	// through the provisioner.
	provision *provision.Provision
	make      provision.Maker

	followed *follow.Reader
	passages *passage.Reader
	messages *lookup.Reader
}

var _ bus.Bus = (*Bus)(nil)

// Connect connects to a server. It waits for the first connection, at most until the context
// ends; from then on nats.go reconnects by itself.
func Connect(ctx context.Context, options Options) (*Bus, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	b := newBus(options)
	if b.on.NATS, err = b.dial(ctx); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if b.on.JetStream, err = b.newJetStream(); err != nil {
		b.on.NATS.Close()
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	return b, nil
}

// newBus is a bus that is not connected yet.
func newBus(o Options) *Bus {
	settings := conn.Options{Timeout: o.Timeout, APIPrefix: o.APIPrefix, Intervals: o.intervals(), Log: o.Log}
	if o.Server != nil {
		settings.Hub = o.Server.Handover()
	}
	b := &Bus{options: o, on: conn.New(settings)}
	b.listing = listing.New(b.on)
	b.provision = provision.New(b.on, b.listing, provision.Options{Policy: o.policy(), User: o.user, Asks: o.orders})
	b.make = b.provision.Maker()
	b.followed = follow.New(b.on, b.make, b.listing.Drop)
	b.passages = passage.New(b.on, b.make, o.Backups)
	b.messages = lookup.New(b.on, o.orders)
	return b
}

func (o Options) intervals() conn.Intervals {
	return conn.IntervalsOf(o.Replicas, o.Server != nil, o.Server != nil && o.Server.Clustered())
}

// dial retries until the context ends, because services and their server often start together.
// It does not wait for a server in this process, which either runs already or never will; but
// that server may be slow to answer, so dial retries after a time-out.
func (b *Bus) dial(ctx context.Context) (*nats.Conn, error) {
	options := b.options.nats(b.on)
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
		jetstream.WithDefaultTimeout(b.on.Timeout),
	}
	if b.options.APIPrefix != "" {
		return jetstream.NewWithAPIPrefix(b.on.NATS, b.options.APIPrefix, options...)
	}
	return jetstream.New(b.on.NATS, options...)
}

// Healthy is nil while the bus can be used. A permission error stays until the next reconnect,
// because it does not go away by itself.
func (b *Bus) Healthy() error { return b.on.Healthy() }

// Close ends every reader and publisher and the connection.
func (b *Bus) Close() error {
	b.on.Close()
	return nil
}

// Describe makes a Bus a [prometheus.Collector].
func (b *Bus) Describe(ch chan<- *prometheus.Desc) { b.on.Stats.Describe(ch) }

// Collect makes a Bus a [prometheus.Collector].
func (b *Bus) Collect(ch chan<- prometheus.Metric) { b.on.Stats.Collect(ch) }
