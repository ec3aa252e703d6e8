package streamtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Whole is a bus with all interfaces that this suite tests.
type Whole interface {
	bus.ShadowBus
	bus.Archive
}

// Patient wraps a bus of several servers in a client that retries, as the services do. Servers
// of a cluster elect another leader now and then, and do not answer meanwhile: Patient repeats
// repeatable requests while their error passes. A replica may answer a lookup before it has
// applied a message that another one has acknowledged: Patient repeats a lookup until its
// answer has all messages that this bus has stored. It forgives nothing else: it does not store
// a message twice, and it returns refusals.
func Patient(b Whole, passes func(error) bool) bus.Bus {
	undecided := func(err error) bool { return errors.Is(err, errUndecided) || passes(err) }
	return &patient{Whole: b, passes: undecided, newest: map[string]uint64{}, ends: map[string]uint64{}}
}

type patient struct {
	Whole
	passes func(error) bool

	mu     sync.Mutex
	newest map[string]uint64 // by subject: the last stored sequence
	ends   map[string]uint64 // the last stored sequence by stream, of turns and outcomes
}

// retryPause is the pause between two attempts.
const retryPause = 20 * time.Millisecond

// insist repeats a request while its error passes.
func (p *patient) insist(ctx context.Context, request func() error) error {
	for deadline := time.Now().Add(Patience); ; {
		err := request()
		if err == nil || !p.passes(err) || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		rest(ctx)
	}
}

func rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(retryPause):
	}
}

// asked is the answer to a request that may be repeated.
func asked[T any](ctx context.Context, p *patient, question func() (T, error)) (answer T, err error) {
	err = p.insist(ctx, func() (err error) { answer, err = question(); return err })
	return answer, err
}

// found is a message, if it exists.
type found struct {
	events.Message
	there bool
}

// look repeats a lookup until its answer has all stored messages.
func (p *patient) look(ctx context.Context, stream string, lookup func() (events.Message, bool, error), missed func(found) uint64) (events.Message, bool, error) {
	for deadline := time.Now().Add(Patience); ; rest(ctx) {
		f, err := asked(ctx, p, func() (f found, err error) { f.Message, f.there, err = lookup(); return f, err })
		if err != nil || ctx.Err() != nil || time.Now().After(deadline) || !p.stale(ctx, stream, missed(f)) {
			return f.Message, f.there, err
		}
	}
}

// stale reports whether a stream has a message that a lookup missed; 0: it missed none.
func (p *patient) stale(ctx context.Context, stream string, missed uint64) bool {
	if missed == 0 {
		return false
	}
	leader, err := p.StreamState(ctx, stream)
	return err == nil && leader.Last >= missed // or it is another stream of this name
}

// newer is the last sequence stored on a subject, if it is higher than another one; 0: none
// was.
func (p *patient) newer(on string, than uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.newest[on]; n > than {
		return n
	}
	return 0
}

func (p *patient) stored(on string, sequence uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest[on] = max(p.newest[on], sequence)
	if stream := streamOf(on); stream != "" {
		p.ends[stream] = max(p.ends[stream], sequence)
	}
}

// streamOf is the stream of a turn or an outcome; empty for other subjects.
func streamOf(on string) string {
	switch token := strings.Split(on, "."); token[0] {
	case "turn":
		return subject.TurnStream(token[1])
	case "outcome":
		return subject.OutcomeStream(token[1])
	}
	return ""
}

func (p *patient) Last(ctx context.Context, stream, on string) (events.Message, bool, error) {
	return p.look(ctx, stream, func() (events.Message, bool, error) { return p.Whole.Last(ctx, stream, on) },
		func(f found) uint64 { return p.newer(on, f.Sequence) })
}

func (p *patient) Next(ctx context.Context, stream, on string, from uint64) (events.Message, bool, error) {
	return p.look(ctx, stream, func() (events.Message, bool, error) { return p.Whole.Next(ctx, stream, on, from) },
		func(f found) uint64 {
			if f.there {
				return 0
			}
			return p.newer(on, max(from, 1)-1)
		})
}

func (p *patient) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	return p.look(ctx, stream, func() (events.Message, bool, error) { return p.Whole.At(ctx, stream, sequence) },
		func(f found) uint64 { return p.missedAt(stream, sequence, f) })
}

// missedAt is what a lookup at a sequence missed: the message itself.
func (p *patient) missedAt(stream string, sequence uint64, f found) uint64 {
	_, ofKind := subject.KindOfStream(stream)
	p.mu.Lock()
	defer p.mu.Unlock()
	there := sequence <= p.ends[stream] || ofKind && slices.Contains(slices.Collect(maps.Values(p.newest)), sequence)
	if f.there || !there {
		return 0
	}
	return sequence
}

func (p *patient) LastOf(ctx context.Context, stream string, subjects []string) (all map[string]events.Message, err error) {
	for deadline := time.Now().Add(Patience); ; rest(ctx) {
		all, err = asked(ctx, p, func() (map[string]events.Message, error) { return p.Whole.LastOf(ctx, stream, subjects) })
		missed := uint64(0)
		for _, on := range subjects {
			missed = max(missed, p.newer(on, all[on].Sequence))
		}
		if err != nil || ctx.Err() != nil || time.Now().After(deadline) || !p.stale(ctx, stream, missed) {
			return all, err
		}
	}
}

// errUndecided: the bus refuses a message because another one is stored, or is about to be, and a lookup
// finds none yet.
var errUndecided = errors.New("no newer message is found yet")

// Store repeats an unanswered request. If the bus had stored the message all the same, it
// refuses the repetition, and the newest message of the subject is the one that was sent. A server refuses
// the repetition also while the others have not agreed on the first request, and a replica may not have
// applied it: then Store repeats both the request and the lookup.
func (p *patient) Store(ctx context.Context, m events.Message, expect uint64) (sequence uint64, err error) {
	doubtful := false
	sequence, err = asked(ctx, p, func() (uint64, error) {
		n, err := p.Whole.Store(ctx, m, expect)
		if stream := streamOf(m.Subject); doubtful && errors.Is(err, bus.ErrOvertaken) && stream != "" {
			switch last, there, lookup := p.Last(ctx, stream, m.Subject); {
			case lookup == nil && (!there || last.Sequence <= expect):
				return 0, errUndecided
			case there && bytes.Equal(last.Data, m.Data):
				return last.Sequence, nil
			}
		}
		doubtful = doubtful || err != nil && p.passes(err)
		return n, err
	})
	if err == nil {
		p.stored(m.Subject, sequence)
	}
	return sequence, err
}

func (p *patient) Put(ctx context.Context, m events.Message, id string) (uint64, error) {
	sequence, err := asked(ctx, p, func() (uint64, error) { return p.Whole.Put(ctx, m, id) })
	if err == nil {
		p.stored(m.Subject, sequence)
	}
	return sequence, err
}

func (p *patient) Schedule(ctx context.Context, w events.Wake) error {
	return p.insist(ctx, func() error { return p.Whole.Schedule(ctx, w) })
}

func (p *patient) EnsureKind(ctx context.Context, kind kinds.Kind) error {
	return p.insist(ctx, func() error { return p.Whole.EnsureKind(ctx, kind) })
}

func (p *patient) EnsureController(ctx context.Context, controller string) error {
	return p.insist(ctx, func() error { return p.Whole.EnsureController(ctx, controller) })
}

func (p *patient) EnsureShadow(ctx context.Context, controller string) error {
	return p.insist(ctx, func() error { return p.Whole.EnsureShadow(ctx, controller) })
}

func (p *patient) DeleteKind(ctx context.Context, kind kinds.Name) error {
	p.forgets()
	return p.insist(ctx, func() error { return p.Whole.DeleteKind(ctx, kind) })
}

// forgets: messages that were stored may be gone.
func (p *patient) forgets() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.newest)
	clear(p.ends)
}

func (p *patient) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	return asked(ctx, p, func() ([]kinds.Kind, error) { return p.Whole.Kinds(ctx) })
}

func (p *patient) Controllers(ctx context.Context) ([]string, error) {
	return asked(ctx, p, func() ([]string, error) { return p.Whole.Controllers(ctx) })
}

func (p *patient) Shadows(ctx context.Context) ([]string, error) {
	return asked(ctx, p, func() ([]string, error) { return p.Whole.Shadows(ctx) })
}

func (p *patient) Consumers(ctx context.Context, stream string) ([]bus.Consumer, error) {
	return asked(ctx, p, func() ([]bus.Consumer, error) { return p.Whole.Consumers(ctx, stream) })
}

func (p *patient) StreamState(ctx context.Context, stream string) (bus.State, error) {
	return asked(ctx, p, func() (bus.State, error) { return p.Whole.StreamState(ctx, stream) })
}

func (p *patient) Healthy() error { return p.insist(context.Background(), p.Whole.Healthy) }

// Read goes on after the messages that were handed over.
func (p *patient) Read(ctx context.Context, passage bus.Passage, handle func([]events.Message) error) error {
	var own error
	err := p.insist(ctx, func() error {
		err := p.Whole.Read(ctx, passage, func(batch []events.Message) error {
			passage.From, passage.Since = batch[len(batch)-1].Sequence+1, time.Time{}
			own = handle(batch)
			return own
		})
		if own != nil {
			return nil // the handler's own error, which is not retried
		}
		return err
	})
	return errors.Join(own, err)
}

// Append opens a log.
func (p *patient) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	opened, err := asked(ctx, p, func() (bus.Appender, error) { return p.Whole.Append(ctx, kind) })
	if err != nil {
		return nil, err
	}
	return &patientAppender{Appender: opened, bus: p, kind: kind, known: opened.Last()}, nil
}

// patientAppender does as the watcher: after an error it opens the log again, checks which of
// its messages are stored, and appends the rest again. If the message of another publisher lies
// between them, it was overtaken.
type patientAppender struct {
	bus.Appender
	bus   *patient
	kind  kinds.Name
	known uint64           // the last sequence that is known to be stored
	given []events.Message // messages after known
	err   error            // the first error that does not pass; sticky
}

func (a *patientAppender) Append(ctx context.Context, m events.Message) error {
	if a.err != nil {
		return a.err
	}
	a.given = append(a.given, m)
	a.err = a.Appender.Append(ctx, m)
	if a.err != nil && a.bus.passes(a.err) {
		a.err = a.bus.insist(ctx, func() error { return a.again(ctx) })
	}
	return a.err
}

func (a *patientAppender) Flush(ctx context.Context) error {
	if a.err != nil {
		return a.err
	}
	if a.err = a.Appender.Flush(ctx); a.err != nil && a.bus.passes(a.err) {
		a.err = a.bus.insist(ctx, func() error {
			if err := a.again(ctx); err != nil {
				return err
			}
			return a.Appender.Flush(ctx)
		})
	}
	if a.err == nil {
		for i, m := range a.given {
			a.bus.stored(m.Subject, a.known+uint64(i)+1)
		}
		a.known, a.given = a.known+uint64(len(a.given)), nil
	}
	return a.err
}

// again opens the log again, and appends the messages that are not stored.
func (a *patientAppender) again(ctx context.Context) error {
	opened, err := a.bus.Whole.Append(ctx, a.kind)
	if err != nil {
		return err
	}
	stream := subject.LogStream(a.kind)
	end := opened.Last()
	if end < a.known || end > a.known+uint64(len(a.given)) {
		return fmt.Errorf("%w: %s ends at %d, and %d to %d were given", bus.ErrOvertaken, stream, end, a.known+1, a.known+uint64(len(a.given)))
	}
	for n := a.known + 1; n <= end; n++ {
		mine := a.given[n-a.known-1]
		m, there, err := a.bus.Whole.At(ctx, stream, n)
		if err != nil {
			return err
		}
		if !there || m.Subject != mine.Subject || !bytes.Equal(m.Data, mine.Data) {
			return fmt.Errorf("%w: message %d of %s is another one's", bus.ErrOvertaken, n, stream)
		}
	}
	_ = a.Appender.Close()
	a.Appender = opened
	for _, m := range a.given[end-a.known:] {
		if err := opened.Append(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (a *patientAppender) Last() uint64 { return a.known + uint64(len(a.given)) }

func (a *patientAppender) Close() error {
	if a.err == nil {
		a.err = fmt.Errorf("append to the log of %s: %w", a.kind, bus.ErrClosed)
	}
	return a.Appender.Close()
}
