package publish

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/handover"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Connection is what a publisher needs of the bus.
type Connection interface {
	// NATS and JetStream are the connection and its JetStream API.
	NATS() *nats.Conn
	JetStream() jetstream.JetStream
	// Hub takes what was stored for the readers of this process; nil: there are none.
	Hub() *handover.Hub
	// Timeout bounds a request whose context has no deadline.
	Timeout() time.Duration
	// Closed is a channel that is closed with the bus.
	Closed() <-chan struct{}
	// Guarded is a context that ends when the server refuses a request with these words in its subject. The
	// function ends it, too.
	Guarded(ctx context.Context, about string) (context.Context, func())
	// StreamState is the state of a stream.
	StreamState(ctx context.Context, stream string) (bus.State, error)
	// Stored and Failed count a message that was stored, and one that was not, with the reason.
	Stored(stream string)
	Failed(reason error)
}

// Publisher is a [bus.Publisher] on a connection.
type Publisher struct{ On Connection }

var _ bus.Publisher = Publisher{}

// Store stores a message if the last message of its subject has the sequence expect; see
// [bus.Publisher].
func (p Publisher) Store(ctx context.Context, m events.Message, expect uint64) (uint64, error) {
	ack, err := p.publish(ctx, Outgoing(m, jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(expect, 10)))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// Put stores a message once per id; see [bus.Publisher]. It hands an outcome over to the readers
// of this process.
func (p Publisher) Put(ctx context.Context, m events.Message, id string) (uint64, error) {
	out := Outgoing(m, jetstream.MsgIDHeader, id)
	ack, err := p.publish(ctx, out)
	switch {
	case err != nil: // perhaps it was stored
		if controller, _, _, other := subject.ParseTurn(m.Subject); other == nil {
			p.On.Hub().Lose(subject.OutcomeStream(controller))
		}
		return 0, err
	case !ack.Duplicate: // else it was stored earlier, perhaps with another content
		p.On.Hub().Store(published(out, ack.Stream, ack.Sequence))
	}
	return ack.Sequence, nil
}

// wakeAge is how long a fired wake waits for a reconciler to answer it.
const wakeAge = 7 * 24 * time.Hour

// Schedule sets the wake of a key; see [bus.Publisher]. It writes the header itself because the
// client library cuts the time to whole seconds, which would fire early; the server keeps
// nanoseconds.
func (p Publisher) Schedule(ctx context.Context, w events.Wake) error {
	m, err := events.EncodeJSON(w, w.Trace)
	if err != nil {
		return fmt.Errorf("schedule %s for %v: %w", w.Controller, w.Key, err)
	}
	m.Subject = subject.Schedule(w.Controller, w.Key)
	_, err = p.publish(ctx, Outgoing(m,
		jetstream.ScheduleHeader, "@at "+formatTime(w.At),
		jetstream.ScheduleTargetHeader, subject.Wake(w.Controller, w.Key),
		jetstream.ScheduleTTLHeader, seconds(wakeAge),
	))
	return err
}

// formatTime formats a time, limited to the range of int64 nanoseconds since 1970 that the server
// uses.
func formatTime(at time.Time) string {
	first, last := time.Unix(0, 0), time.Date(2261, 1, 1, 0, 0, 0, 0, time.UTC)
	switch {
	case at.Before(first):
		at = first
	case at.After(last):
		at = last
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// publish stores one message.
func (p Publisher) publish(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	request, done := p.On.Guarded(ctx, m.Subject)
	defer done()
	ack, err := p.On.JetStream().PublishMsg(request, m)
	if err != nil {
		if natserr.HasNoListener(err) {
			err = p.whyUnanswered(ctx, m.Subject, err)
		}
		err = natserr.Translate(request, err)
		p.On.Failed(err)
		return nil, fmt.Errorf("publish on %s: %w", m.Subject, err)
	}
	p.On.Stored(ack.Stream)
	return ack, nil
}

// whyUnanswered reports whether the stream does not exist, or the server is not ready to serve
// it.
func (p Publisher) whyUnanswered(ctx context.Context, subject string, err error) error {
	request, done := p.On.Guarded(ctx, "STREAM.NAMES")
	defer done()
	if _, lookup := p.On.JetStream().StreamNameBySubject(request, subject); lookup != nil {
		if named := natserr.Translate(request, lookup); natserr.IsPermanent(named) {
			return named
		}
	}
	return err
}

// Outgoing seals a message and adds headers, given as key, value, ... It does not change the
// caller's headers, since the caller may send the message again.
func Outgoing(m events.Message, more ...string) *nats.Msg {
	if m.Sealed() {
		m.Header = maps.Clone(m.Header)
	} else {
		m = events.Seal(m)
	}
	for i := 0; i+1 < len(more); i += 2 {
		m.Header[more[i]] = []string{more[i+1]}
	}
	return &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
}

// published is a message as its readers get it, but for the time: the server stamped it a moment ago.
func published(m *nats.Msg, stream string, sequence uint64) events.Message {
	return events.Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Stream: stream, Sequence: sequence, Time: time.Now()}
}

// seconds formats a TTL for the server, rounded up to whole seconds, and at least one.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%ds", int64(math.Ceil(max(d, time.Second).Seconds())))
}
