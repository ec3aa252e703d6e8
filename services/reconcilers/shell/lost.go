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
	"github.com/millrace/millrace/services/reconcilers/engine"
)

// The bus may lose messages that it has acknowledged: a server without power loses what it had
// not yet written to disk. A change counted as dealt with because its turn was stored; if that
// turn is lost, nothing will ever ask for its key again. So every loop remembers how far the
// streams of its controller reached, and one message of each as a witness. When a stream ends
// earlier than it did, was recreated, or has another message at the sequence of the witness,
// the engine asks about every key again.

// inspected is how often the streams are compared with their witnesses. A stream in which nothing was
// stored since the last time is compared after restInspected, and then less and less often, up to
// longRestInspected: a server that loses messages without breaking off its consumers is an unforeseen case. If
// a stream has not changed at all, its witness is read again only after restRead: the server has to load a
// block of up to 8 MB for it.
const (
	inspected         = 5 * time.Second
	restInspected     = 20 * time.Second
	longRestInspected = 160 * time.Second
	restRead          = 10 * time.Minute
)

// inspection is when a stream was inspected, and how long it may rest from then on.
type inspection struct {
	at   time.Time
	rest time.Duration
}

// isDue reports whether the stream is to be inspected at a tick of the loop.
func (i inspection) isDue(now time.Time) bool { return now.Sub(i.at) >= i.rest-inspected/2 }

// next is the inspection that follows, by whether the stream had news.
func (i inspection) next(now time.Time, news bool) inspection {
	if news {
		return inspection{at: now, rest: restInspected}
	}
	return inspection{at: now, rest: min(max(2*i.rest, restInspected), longRestInspected)}
}

// witness is what the loop remembers of a stream.
type witness struct {
	known   bool
	created time.Time
	last    uint64
	// sequence and subject are those of a message that was stored, or seen; 0: none yet.
	sequence uint64
	subject  string
	// read is when that message was last read, and state the stream's state then.
	read  time.Time
	state bus.State
}

// stands reports whether the witness need not be read: it was read less than restRead ago, and
// since then no message was added to the stream or removed.
func (w witness) stands(now bus.State) bool {
	return now.Created.Equal(w.state.Created) && now.First == w.state.First && now.Last == w.state.Last &&
		now.Messages == w.state.Messages && now.Bytes == w.state.Bytes && time.Since(w.read) < restRead
}

// witnesses holds the witnesses of a loop's streams.
type witnesses struct {
	mu       sync.Mutex
	byStream map[string]*witness
	checkNow chan struct{} // a consumer broke off: inspect now
}

func newWitnesses(controller string) *witnesses {
	return &witnesses{
		checkNow: make(chan struct{}, 1),
		byStream: map[string]*witness{
			subject.TurnStream(controller): {}, subject.OutcomeStream(controller): {}, subject.WakeStream: {},
		},
	}
}

// observe makes a message that a stream holds its witness, unless the witness is newer.
func (l *witnesses) observe(stream string, sequence uint64, subject string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.byStream[stream]; w != nil && sequence >= w.sequence {
		w.sequence, w.subject, w.read = sequence, subject, time.Time{}
	}
}

// hasNews reports whether a message of a stream has been stored or seen since the last inspection of
// the stream, or there was no inspection yet.
func (l *witnesses) hasNews(stream string) bool {
	w := l.get(stream)
	return !w.known || w.sequence > w.last
}

func (l *witnesses) suspect() {
	select {
	case l.checkNow <- struct{}{}:
	default:
	}
}

// reread has every witness read again.
func (l *witnesses) reread() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.byStream {
		w.read = time.Time{}
	}
}

// get returns the witness of a stream.
func (l *witnesses) get(stream string) witness {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.byStream[stream]
}

// record records a stream's state. After a loss it forgets everything older.
func (l *witnesses) record(stream string, s bus.State, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.byStream[stream]
	if lost {
		*w = witness{}
	}
	w.known, w.created, w.last = true, s.Created, max(w.last, s.Last)
}

// confirm records that a stream still had its witness, unless the witness has been replaced
// since.
func (l *witnesses) confirm(stream string, w witness, s bus.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.byStream[stream]; of.sequence == w.sequence {
		of.read, of.state = time.Now(), s
	}
}

// loss describes what a stream has lost, as far as its witness can tell; nil for nothing.
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

// checkStreams checks the loop's streams for losses until the context ends.
func (l *Loop) checkStreams(ctx context.Context) {
	tick := time.NewTicker(inspected)
	defer tick.Stop()
	last := map[string]inspection{}
	for all := true; ; {
		for stream := range l.witnesses.byStream {
			news := all || l.witnesses.hasNews(stream)
			if !news && !last[stream].isDue(time.Now()) {
				continue
			}
			err := l.checkStream(ctx, stream)
			if err == nil {
				last[stream] = last[stream].next(time.Now(), news)
				continue
			}
			delete(last, stream) // the next tick tries again
			if ctx.Err() == nil {
				l.fail(fmt.Errorf("inspect %s: %w", stream, err))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-l.witnesses.checkNow:
			all = true
			l.witnesses.reread()
		case <-tick.C:
			all = false
		}
	}
}

// checkStream compares a stream with its witness, and a second time if that shows a loss: the
// server that answers first may lag behind the others.
func (l *Loop) checkStream(ctx context.Context, stream string) error {
	now, lost, err := l.checkWitness(ctx, stream)
	if lost != nil {
		pause(ctx)
		now, lost, err = l.checkWitness(ctx, stream)
	}
	if err != nil {
		return err
	}
	l.witnesses.record(stream, now, lost != nil)
	if lost == nil {
		return nil
	}
	if l.settings.Lost != nil {
		l.settings.Lost(stream, lost)
	}
	l.Do(func(d *engine.Engine) { d.Lost(stream) })
	return nil
}

// checkWitness copies the witness before it reads the stream, so that messages stored meanwhile do not
// checkWitness like a loss.
func (l *Loop) checkWitness(ctx context.Context, stream string) (now bus.State, lost, err error) {
	w := l.witnesses.get(stream)
	if now, err = l.bus.StreamState(ctx, stream); err != nil {
		return now, nil, err
	}
	l.SetBusTime(now)
	if w.stands(now) {
		return now, nil, nil
	}
	if lost, err = loss(ctx, l.bus, stream, w, now); lost == nil && err == nil {
		l.witnesses.confirm(stream, w, now)
	}
	return now, lost, err
}
