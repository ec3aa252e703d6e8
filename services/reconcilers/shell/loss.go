package shell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// What was acknowledged may be lost all the same: a server without power forgets
// what it had not yet written down. A change was dealt with because its turn was
// stored; if the turn is gone, nothing will ever ask for that key again. So every
// loop remembers how far the streams of its controller reached, and one message
// of each as a witness. When a stream ends earlier than it did, was made anew, or
// holds something else where the witness was, every key is asked again.

// inspected is how often the streams are held against what is known of them, and
// restInspected how often where nothing was stored since the last time. The witness
// of a stream that is what it was to the byte is read again after restRead: the
// server has to load a block of up to 8 MB for it.
const (
	inspected     = 5 * time.Second
	restInspected = 20 * time.Second
	restRead      = 10 * time.Minute
)

// witness is what is known of a stream.
type witness struct {
	known   bool
	created time.Time
	last    uint64
	// sequence and subject are those of a message that was stored, or seen; 0 for
	// none as yet.
	sequence uint64
	subject  string
	// read is when that message was last read, and state what the stream was like.
	read  time.Time
	state bus.State
}

// stands tells whether there is no need to read the witness: it was read not long ago,
// and nothing has been added to the stream since, nor taken away.
func (w witness) stands(now bus.State) bool {
	return now.Created.Equal(w.state.Created) && now.First == w.state.First && now.Last == w.state.Last &&
		now.Messages == w.state.Messages && now.Bytes == w.state.Bytes && time.Since(w.read) < restRead
}

// ledger is the witnesses of a loop's streams.
type ledger struct {
	mu        sync.Mutex
	witnesses map[string]*witness
	suspicion chan struct{} // a reader broke off: look now
}

func newLedger(controller string) *ledger {
	return &ledger{
		suspicion: make(chan struct{}, 1),
		witnesses: map[string]*witness{
			subject.TurnStream(controller): {}, subject.OutcomeStream(controller): {}, subject.WakeStream: {},
		},
	}
}

// saw remembers a message that a stream holds.
func (l *ledger) saw(stream string, sequence uint64, subject string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.witnesses[stream]; w != nil && sequence >= w.sequence {
		w.sequence, w.subject, w.read = sequence, subject, time.Time{}
	}
}

// news tells whether a message of a stream has been stored, or seen, since the stream
// was last looked at, or the stream never was.
func (l *ledger) news(stream string) bool {
	w := l.of(stream)
	return !w.known || w.sequence > w.last
}

func (l *ledger) suspect() {
	select {
	case l.suspicion <- struct{}{}:
	default:
	}
}

// doubt has every witness read again.
func (l *ledger) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.witnesses {
		w.read = time.Time{}
	}
}

// of is what is known of a stream.
func (l *ledger) of(stream string) witness {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.witnesses[stream]
}

// note takes in where a stream stands. After a loss nothing older is known.
func (l *ledger) note(stream string, s bus.State, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.witnesses[stream]
	if lost {
		*w = witness{}
	}
	w.known, w.created, w.last = true, s.Created, max(w.last, s.Last)
}

// proved takes in that a stream still had its witness, unless it has another one by now.
func (l *ledger) proved(stream string, w witness, s bus.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.witnesses[stream]; of.sequence == w.sequence {
		of.read, of.state = time.Now(), s
	}
}

// loss is what a stream has lost, as far as its witness can tell; nil for nothing.
func loss(ctx context.Context, b bus.Bus, stream string, w witness, now bus.State) (loss, err error) {
	switch {
	case w.known && !now.Created.Equal(w.created):
		return fmt.Errorf("it was made anew at %v", now.Created), nil
	case now.Last < max(w.last, w.sequence):
		return fmt.Errorf("it ends at message %d and has held message %d", now.Last, max(w.last, w.sequence)), nil
	case w.sequence < now.First:
		return nil, nil // the witness has expired, or there is none
	}
	m, ok, err := b.At(ctx, stream, w.sequence)
	switch {
	case errors.Is(err, events.ErrDamaged):
		return fmt.Errorf("message %d cannot be read any more: %w", w.sequence, err), nil
	case err != nil:
		return nil, err
	case !ok:
		return fmt.Errorf("message %d is missing", w.sequence), nil
	case m.Subject != w.subject:
		return fmt.Errorf("message %d was on %s and is on %s", w.sequence, w.subject, m.Subject), nil
	}
	return nil, nil
}

// inspect looks for losses until the context ends.
func (l *Loop) inspect(ctx context.Context) {
	tick := time.NewTicker(inspected)
	defer tick.Stop()
	looked := map[string]time.Time{}
	for all := true; ; {
		for stream := range l.ledger.witnesses {
			if !all && time.Since(looked[stream]) < restInspected-inspected/2 && !l.ledger.news(stream) {
				continue
			}
			if err := l.compare(ctx, stream); err == nil {
				looked[stream] = time.Now()
			} else if ctx.Err() == nil {
				l.fail(fmt.Errorf("inspect %s: %w", stream, err))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-l.ledger.suspicion:
			all = true
			l.ledger.doubt()
		case <-tick.C:
			all = false
		}
	}
}

// compare holds a stream against its witness, and once more where that speaks of a
// loss: the server that answers first may not have caught up with the others.
func (l *Loop) compare(ctx context.Context, stream string) error {
	now, lost, err := l.look(ctx, stream)
	if lost != nil {
		pause(ctx)
		now, lost, err = l.look(ctx, stream)
	}
	if err != nil {
		return err
	}
	l.ledger.note(stream, now, lost != nil)
	if lost == nil {
		return nil
	}
	if l.engine.settings.Lost != nil {
		l.engine.settings.Lost(stream, lost)
	}
	l.Tell(func(d *Engine) { d.Lost(stream) })
	return nil
}

// look takes the witness first: what is stored meanwhile is no loss.
func (l *Loop) look(ctx context.Context, stream string) (now bus.State, lost, err error) {
	w := l.ledger.of(stream)
	if now, err = l.bus.StreamState(ctx, stream); err != nil {
		return now, nil, err
	}
	l.tick(now)
	if w.stands(now) {
		return now, nil, nil
	}
	if lost, err = loss(ctx, l.bus, stream, w, now); lost == nil && err == nil {
		l.ledger.proved(stream, w, now)
	}
	return now, lost, err
}

// Lost says that a stream of this controller has lost messages that it had
// acknowledged: turns whose changes were dealt with, outcomes that a fence rests on,
// or wakes. Every key is recalled and asked again; wakes are set anew.
func (d *Engine) Lost(stream string) {
	keys, _ := d.keys()
	for _, e := range d.sorted() {
		switch stream {
		case subject.WakeStream:
			e.wake = time.Time{}
		case subject.OutcomeStream(d.name):
			// What this engine has heard is not in the record any more: a turn whose
			// outcome the stream lacks is repeated, and so found again.
			e.act.outcome, e.tell.outcome = 0, 0
		}
		e.doubt()
	}
	for _, k := range keys {
		if d.owns(k) {
			d.entry(k).inquire = stream != subject.WakeStream
		}
	}
	for _, e := range d.sorted() {
		d.demand(e, idly)
	}
}
