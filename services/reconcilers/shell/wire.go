package shell

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ackWait is how long a dead replica's tickets stay with it. Desks renew what
// they hold several times within it.
const ackWait = 2 * time.Second

// outcomesSince is how far back outcomes are delivered by a consumer that is made
// anew. The fence reads older ones where it needs them, and desks hold an outcome
// in hand for much less than this.
const outcomesSince = 10 * time.Minute

func storeTurn(ctx context.Context, b bus.Publisher, t events.Turn, expect uint64, signer *sign.Signer, now time.Time) (uint64, error) {
	m, err := events.EncodeJSON(t, t.Trace)
	if err != nil {
		return 0, fmt.Errorf("store turn of %s for %v: %w", t.Controller, t.Key, err)
	}
	m.Subject = subject.Turn(t.Controller, t.Lane, t.Key)
	signer.Turn(m, expect, now)
	sequence, err := b.Store(ctx, m, expect)
	if err != nil {
		return 0, fmt.Errorf("store turn of %s for %v: %w", t.Controller, t.Key, err)
	}
	return sequence, nil
}

// edge is how far a stream reaches.
type edge struct {
	sequence uint64    // of the last message that it holds; 0 when it holds none
	stored   time.Time // when that was stored
	spent    bool      // it holds none any more
}

// end is the edge of a kind: of the last message that its state stream holds or
// is about to hold. The log knows: the state stream mirrors it, with the same
// sequences, and may lag behind it. But what the log has dropped by its age, the
// state stream still has.
func end(ctx context.Context, b bus.Bus, kind kinds.Name) (edge, error) {
	log, err := edgeOf(ctx, b, subject.LogStream(kind))
	if err != nil {
		return edge{}, err
	}
	state, err := edgeOf(ctx, b, subject.StateStream(kind))
	if log.sequence > state.sequence || state.sequence == 0 {
		return log, err
	}
	return state, err
}

// scan bounds the search for the last message of a stream whose end has
// expired.
const scan = 1000

// edgeOf finds the last message that a stream holds. The stream's own last
// sequence may be of a message that has expired since, which no follower will
// ever get.
func edgeOf(ctx context.Context, b bus.Bus, stream string) (edge, error) {
	state, err := b.StreamState(ctx, stream)
	if err != nil || state.Messages == 0 {
		return edge{spent: state.Last > 0}, err
	}
	at := state.Last
	for ; at > state.First && state.Last-at < scan; at-- {
		if m, ok, err := b.At(ctx, stream, at); err != nil || ok {
			return edge{sequence: at, stored: m.Time}, err
		}
	}
	m, _, err := b.At(ctx, stream, at)
	return edge{sequence: at, stored: m.Time}, err
}

// Serve feeds the desk from the controller's own streams and from the tickets
// of one kind after the other as Attend names them, until the context ends.
// ready is called once no outcome can be missed any more.
func (l *Loop) Serve(ctx context.Context, ready func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.followOutcomes(ctx, ready)
	}()
	go l.hearWriters(ctx)
	go l.inspect(ctx)
	go l.work(ctx, bus.Work{Stream: subject.OutcomeStream(l.Name()), Since: outcomesSince}, l.deliverOutcome)
	go l.work(ctx, bus.Work{Stream: subject.WakeStream, Subject: subject.Wakes(l.Name())}, l.deliverWake)
	<-done
}

// hearWriters tells the desk what the writers have in hand, and now and then that
// they are there.
func (l *Loop) hearWriters(ctx context.Context) {
	var told time.Time
	for ctx.Err() == nil {
		err := l.bus.Listen(ctx, events.Writers, func(data []byte) {
			b, ok := events.DecodeBeat(data)
			if now := l.clock(); ok && (len(b.InHand(l.Name())) > 0 || now.Sub(told) > attendance/2) && l.proves(data) {
				told = now
				l.Tell(func(d *Desk) { d.Beat(b) })
			}
		})
		if err != nil {
			l.fail(fmt.Errorf("hear the writers: %w", err))
			pause(ctx)
		}
	}
}

// Attend takes the tickets of a kind until the context ends. The consumer is kept
// in the server's memory: writing down each answer took a quarter of the
// processor time of a busy cluster. One that is made anew starts at the end of
// the stream, since a desk that opens asks about every key, and the second look
// finds what changed between.
func (l *Loop) Attend(ctx context.Context, kind kinds.Name) {
	w := bus.Work{Stream: subject.StateStream(kind), HeadersOnly: true, New: true, Volatile: true}
	l.work(ctx, w, func(d bus.Delivery) { l.deliver(kind, d) })
}

func (l *Loop) work(ctx context.Context, w bus.Work, handle func(bus.Delivery)) {
	w.Durable, w.AckWait = l.Name(), ackWait
	for ctx.Err() == nil {
		if err := l.bus.Work(ctx, w, handle); err != nil {
			l.fail(fmt.Errorf("work on %s: %w", w.Stream, err))
			pause(ctx)
		}
	}
}

// recent is how long a failure counts: those that last are repeated sooner.
const recent = 2 * time.Second

func (l *Loop) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	if l.failure == nil || now.Sub(l.failedAt) > recent {
		l.failing = now
	}
	l.failure, l.failedAt = err, now
}

// Trouble is why the desk does not get its deliveries; nil while it does.
func (l *Loop) Trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil || l.clock().Sub(l.failedAt) > recent {
		return nil
	}
	return l.failure
}

// followOutcomes shows the desk every outcome, other replicas' included, from
// now on. When the stream breaks off, what was missed has to be recalled.
func (l *Loop) followOutcomes(ctx context.Context, ready func()) {
	stream := subject.OutcomeStream(l.Name())
	for ctx.Err() == nil {
		state, err := l.bus.StreamState(ctx, stream)
		if err != nil {
			l.fail(fmt.Errorf("follow %s: %w", stream, err))
			pause(ctx)
			continue
		}
		l.tick(state)
		l.Tell((*Desk).Doubt)
		ready()
		err = l.bus.Follow(ctx, stream, state.Last+1, func(batch []events.Message) error {
			outcomes := make([]events.Outcome, 0, len(batch))
			for _, m := range batch {
				var o events.Outcome
				if l.desk.settings.Signatures.believes(m) && events.DecodeJSON(m, &o) == nil { // the durable delivery reports the damage
					outcomes = append(outcomes, o)
				}
			}
			newest := batch[len(batch)-1]
			l.ledger.saw(stream, newest.Sequence, newest.Subject)
			l.Tell(func(d *Desk) {
				for _, o := range outcomes {
					d.Outcome(o)
				}
			})
			return nil
		})
		l.ledger.suspect()
		if err != nil {
			pause(ctx)
		}
	}
}

func (l *Loop) deliver(kind kinds.Name, d bus.Delivery) {
	m := d.Message()
	ref, err := subject.ParseDelta(m.Subject)
	switch {
	case err != nil || ref.Kind != kind:
		d.Hopeless(fmt.Sprintf("subject %q is no object of %s", m.Subject, kind))
	case ref.Name == "":
		d.Done() // a mark is for the memory alone
	default:
		trace := events.TraceOf(m.Header)
		l.Tell(func(desk *Desk) { desk.Ticket(ref, m.Sequence, trace, stamped{d, m.Time}) })
	}
}

// stamped is a delivery with the time of its message, which has been read already.
type stamped struct {
	bus.Delivery
	at time.Time
}

func (s stamped) Stored() time.Time { return s.at }

func (l *Loop) deliverOutcome(d bus.Delivery) {
	m := d.Message()
	var o events.Outcome
	if err := l.desk.settings.Signatures.Outcomes.Outcome(m); err != nil { // who follows has told
		d.Hopeless(err.Error())
		return
	}
	if err := events.DecodeJSON(m, &o); err != nil {
		d.Hopeless(err.Error())
		return
	}
	if o.Lane != events.Act && o.Lane != events.Tell {
		d.Done() // of what was put where no turn of ours is
		return
	}
	l.Tell(func(desk *Desk) { desk.OutcomeTicket(m.Sequence, o, stamped{d, m.Time}) })
}

func (l *Loop) deliverWake(d bus.Delivery) {
	m := d.Message()
	var w events.Wake
	if err := events.DecodeJSON(m, &w); err != nil {
		d.Hopeless(err.Error())
		return
	}
	l.Tell(func(desk *Desk) { desk.Wake(m.Sequence, w, stamped{d, m.Time}) })
}

// pause keeps a loop around a bus that is away from spinning.
func pause(ctx context.Context) {
	const while = 250 * time.Millisecond
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
