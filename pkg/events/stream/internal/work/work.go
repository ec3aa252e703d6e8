package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

const (
	// workMessages bounds one request for deliveries. It is small enough that the worker
	// answers all of them within a short AckWait, and large enough that they last until the
	// next request arrives: meanwhile the server delivers to the next rank. At 20,000 a second
	// that was 3 % of the deliveries with 256, and none with 1024.
	workMessages = 1024

	// drainTime bounds the wait for the return of fetched deliveries.
	drainTime = 500 * time.Millisecond

	defaultAckWait    = 30 * time.Second
	defaultMaxPending = 5000
	// maxRedeliveryDelay bounds a delay: until it has passed, the delivery counts against MaxPending.
	maxRedeliveryDelay = time.Minute
)

// Run consumes a stream through a durable consumer; see [bus.Reader]. It calls the handler for
// one delivery at a time. The handler should only queue the delivery: while it runs, the
// deliveries behind it grow older.
func Run(ctx context.Context, on *conn.Conn, by conn.ConsumerMaker, w bus.Work, handle func(bus.Delivery)) error {
	worker := &worker{on: on, by: by, work: w, handle: handle}
	for attempt := 0; ; attempt++ {
		began := time.Now()
		err := worker.session(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case natserr.IsPermanent(err) && !errors.Is(err, bus.ErrOvertaken):
			return fmt.Errorf("work on %s as %s: %w", w.Stream, w.Durable, err)
		}
		if time.Since(began) > natserr.LongPause {
			attempt = 0
		}
		on.Stats.Restarts.WithLabelValues(w.Stream).Inc()
		on.Log.Debug("attaching to a consumer again", "stream", w.Stream, "consumer", w.Durable, "because", err)
		natserr.Pause(ctx, attempt)
	}
}

type worker struct {
	on     *conn.Conn
	by     conn.ConsumerMaker
	work   bus.Work
	handle func(bus.Delivery)

	made         time.Time // when the consumer of this session was created
	positionLost bool      // the consumer has lost its position
	asked        time.Time // when Known was last asked
}

func (w *worker) session(ctx context.Context) error {
	shaken := w.on.MayHaveMissed()
	request, done := w.on.Guarded(ctx, w.work.Stream)
	defer done()
	consumer, err := w.durable(request)
	if err != nil {
		return natserr.Translate(request, err)
	}
	w.made = consumer.CachedInfo().Created
	broken := make(chan error, 1)
	engine := &engine{worker: w, broken: broken}
	intervals := w.on.Intervals
	consuming, err := consumer.Consume(engine.receive,
		jetstream.PullMaxMessagesWithBytesLimit(min(workMessages, w.maxPending()), delivery.PullBytes),
		jetstream.PullHeartbeat(intervals.Heartbeat), jetstream.PullExpiry(intervals.PullExpiry),
		jetstream.PullPriorityGroup(settings.WorkersGroup), jetstream.PullPrioritized(w.rank()),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { endSession(broken, err) }))
	if err != nil {
		return natserr.Translate(request, err)
	}
	defer drain(consuming)
	defer engine.close()
	go w.watchPosition(request, broken, intervals.ConsumerChecks)
	select {
	case <-request.Done():
		return context.Cause(request)
	case <-w.on.Closed():
		return bus.ErrClosed
	case <-shaken:
		return delivery.ErrMayHaveMissed
	case err := <-broken:
		w.positionLost = errors.Is(err, errPositionLost)
		return natserr.Translate(request, err)
	}
}

// drain returns the fetched deliveries to the server, so that other workers need not wait for
// AckWait. It waits because the worker may close the connection next.
func drain(consuming jetstream.ConsumeContext) {
	consuming.Drain()
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	select {
	case <-consuming.Closed():
	case <-limit.C:
	}
}

func (w *worker) maxPending() int { return cmp.Or(w.work.MaxPending, defaultMaxPending) }

func (w *worker) rank() uint8 { return uint8(min(max(w.work.Rank, 0), bus.LastRank)) }

// order is the consumer that the worker wants.
func (w *worker) order() settings.Consumer {
	o := settings.Consumer{
		Stream: w.work.Stream, Durable: w.work.Durable,
		AckWait: cmp.Or(w.work.AckWait, defaultAckWait), MaxPending: w.maxPending(),
	}
	if w.work.Since > 0 {
		start := time.Now().Add(-w.work.Since)
		o.Since = &start
	}
	return o
}

// durable attaches to the consumer, and creates it if it is missing. It never changes the start
// of an existing consumer, unless the consumer has lost its position.
func (w *worker) durable(ctx context.Context) (jetstream.Consumer, error) {
	order := w.order()
	lookup, done := context.WithTimeout(ctx, conn.LookupTimeout)
	defer done()
	found, err := w.on.JetStream.Consumer(lookup, w.work.Stream, w.work.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return w.by.Consumer(ctx, order)
	case err != nil:
		return nil, err
	}
	if w.positionLost && found.CachedInfo().Created.Equal(w.made) { // no other worker has remade it
		w.on.Stats.Recreated.WithLabelValues(w.work.Stream, w.work.Durable).Inc()
		w.on.Log.Warn("recreating a consumer", "stream", w.work.Stream, "consumer", w.work.Durable, "because", errPositionLost)
		order.Remake = true
		return w.by.Consumer(ctx, order)
	}
	if order.Matches(found.CachedInfo().Config) {
		return found, nil
	}
	order.Update = true
	return w.by.Consumer(ctx, order)
}

// engine receives the deliveries of one session.
type engine struct {
	worker *worker
	broken chan<- error

	mu     sync.Mutex
	closed bool
}

func (d *engine) receive(m jetstream.Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = m.Nak() // if the Nak is lost, the delivery comes again after AckWait
		return
	}
	w := d.worker
	p, err := delivery.PositionOf(m.Reply())
	if err != nil {
		w.on.Log.Error("a delivery has no sequence", "stream", w.work.Stream, "error", err)
		return
	}
	if w.isRedeliveringHistory(m, &p) {
		d.closed = true
		endSession(d.broken, errPositionLost)
		return
	}
	if p.Attempt > 1 {
		w.on.Stats.Redelivered.WithLabelValues(w.work.Stream, w.work.Durable).Inc()
	}
	w.handle(&workDelivery{wire: m, stream: w.work.Stream, place: p})
}

func (d *engine) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// workDelivery answers by publishing on the delivery's reply subject, without waiting. When an
// answer is lost the server redelivers the message, which every worker must tolerate anyway; so
// workDelivery reports no errors. The client library ignores a second answer.
type workDelivery struct {
	wire   jetstream.Msg
	stream string
	place  delivery.Position
}

func (d *workDelivery) Message() events.Message { return delivery.Message(d.stream, d.wire, d.place) }
func (d *workDelivery) Attempt() int            { return d.place.Attempt }
func (d *workDelivery) Ack()                    { _ = d.wire.Ack() }
func (d *workDelivery) InProgress()             { _ = d.wire.InProgress() }

func (d *workDelivery) NakWithDelay(delay time.Duration) {
	if delay <= 0 {
		_ = d.wire.Nak()
		return
	}
	_ = d.wire.NakWithDelay(min(delay, maxRedeliveryDelay))
}

// Term sends the reason to the server, which publishes it as an advisory.
func (d *workDelivery) Term(reason string) {
	_ = d.wire.TermWithReason(strings.Join(strings.Fields(reason), " "))
}

// errPositionLost: a consumer's position is beyond the end of its stream, because the stream
// has lost its last messages; the consumer would deliver nothing until the stream has grown
// that far again. Or the consumer goes through its history once more.
var errPositionLost = errors.New("the consumer has lost its place")

// positionDoubtFor is how long a consumer may seem to be beyond its stream: different servers may report
// the two positions.
const positionDoubtFor = time.Second

// endSession ends a session, unless it has an error already.
func endSession(broken chan<- error, err error) {
	select {
	case broken <- err:
	default:
	}
}

// isRedeliveringHistory reports whether a delivery shows that the consumer goes through its history again. A
// message older than the consumer counts as delivered before, since an earlier consumer may
// have delivered it.
func (w *worker) isRedeliveringHistory(m jetstream.Msg, p *delivery.Position) bool {
	if w.work.Since <= 0 || p.Attempt > 1 {
		return false
	}
	if p.Time.Before(w.made) {
		p.Attempt++
	}
	if p.Pending <= bus.Backlog || time.Since(p.Time) <= w.work.Since || time.Since(w.asked) < positionDoubtFor {
		return false
	}
	w.asked = time.Now()
	return w.work.Known == nil || w.work.Known(delivery.Message(w.work.Stream, m, *p))
}

// watchPosition ends the session when the consumer is beyond the end of its stream. It checks at once,
// and then at the usual interval.
func (w *worker) watchPosition(ctx context.Context, broken chan<- error, usual time.Duration) {
	suspected := false
	for wait := time.Duration(0); ; {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		switch beyond, err := w.isBeyondEnd(ctx); {
		case err != nil || !beyond:
			suspected, wait = false, usual
		case suspected:
			endSession(broken, errPositionLost)
			return
		default:
			suspected, wait = true, positionDoubtFor
		}
	}
}

// isBeyondEnd reads the consumer's position before the stream's end, so that messages stored in
// between do not count.
func (w *worker) isBeyondEnd(ctx context.Context) (bool, error) {
	request, done := w.on.Guarded(ctx, w.work.Stream)
	defer done()
	found, err := w.on.JetStream.Consumer(request, w.work.Stream, w.work.Durable)
	if err != nil {
		return false, err
	}
	info, err := w.on.Info(request, w.work.Stream)
	if err != nil {
		return false, err
	}
	return found.CachedInfo().Delivered.Stream > info.State.LastSeq, nil
}
