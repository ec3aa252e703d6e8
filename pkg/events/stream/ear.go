package stream

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A guest has no consumer to wait on, and polling every stream would be most of the server's
// work. So a guest subscribes to the published messages, which its account imports too, and
// reads the stream when it has heard one. Such a message is only a hint: it has no sequence
// yet, it arrives a moment before the server stores it, and the server may refuse it. So the
// guest reads until it has found as many messages as it heard, a few times at most. Without
// hints it reads seldom, in case one was lost.

const (
	// HeardPrefix precedes the subjects on which guests hear published messages.
	HeardPrefix = access.Heard
	// guestLook is the interval of a guest's reads when it hears nothing.
	guestLook = 2 * time.Second
	// guestRest is the pause between two reads while each finds something.
	guestRest = 20 * time.Millisecond
	// storing is the first pause for a message that was heard and is not stored yet; each pause
	// doubles the one before. After patientLooks of them, 0.6 s, the guest expects nothing any
	// more.
	storing      = 5 * time.Millisecond
	patientLooks = 7
)

// heard is the subject of the messages that are published for a stream; "" if guests do not
// hear them.
func heard(stream string) string {
	if kind, ok := subject.KindOfStream(stream); ok {
		return subject.Log(kind) // a state is a mirror of the log
	}
	if controller, ok := strings.CutPrefix(stream, subject.TurnStream("")); ok {
		return subject.Turns(controller)
	}
	if controller, ok := strings.CutPrefix(stream, subject.OutcomeStream("")); ok {
		return subject.Outcomes(controller)
	}
	return ""
}

// ear tells a guest when to read a stream for new messages.
type ear struct {
	bus  *Bus
	life context.Context // ends with the refusal if the guest may not listen
	done func()
	sub  *nats.Subscription // nil if there is no subject to listen to

	hints chan struct{} // one per heard message, as many as fit
	owed  int           // heard and not found yet
	tries int           // reads without result since the last hint
}

// earBacklog bounds the counted hints; more would change nothing.
const earBacklog = 1024

func (b *Bus) listen(ctx context.Context, stream string) (*ear, error) {
	e := &ear{bus: b, hints: make(chan struct{}, earBacklog)}
	on := heard(stream)
	if on != "" && b.options.APIPrefix != "" {
		on = HeardPrefix + "." + on // imported from another account
	}
	e.life, e.done = b.guarded(ctx, fmt.Sprintf("%q", on))
	if on == "" {
		return e, nil
	}
	var err error
	if e.sub, err = b.conn.Subscribe(on, e.hear); err != nil {
		e.done()
		return nil, translated(ctx, err)
	}
	return e, nil
}

func (e *ear) close() {
	if e.sub != nil {
		_ = e.sub.Unsubscribe()
	}
	e.done()
}

// hear runs on the client library's goroutine.
func (e *ear) hear(*nats.Msg) {
	select {
	case e.hints <- struct{}{}:
	default:
	}
}

// found records that a read has found n new messages, perhaps none.
func (e *ear) found(n int) {
	e.owed = max(e.owed-n, 0)
	if n > 0 {
		e.tries = 0
	}
	if e.tries++; e.tries > patientLooks {
		e.owed = 0
	}
}

// wait waits until the time of the next read; some tells whether the last one found anything.
//
// Errors: listening is forbidden. The end of the context is no error.
func (e *ear) wait(ctx context.Context, shaken <-chan struct{}, some bool) error {
	if some {
		e.pause(guestRest, nil, shaken)
	}
	switch e.count(); {
	case e.owed == 0:
		e.pause(guestLook, e.hints, shaken)
	case !some && e.tries > 0: // no new hint
		e.pause(storing<<(e.tries-1), nil, shaken)
	}
	e.count()
	if e.life.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w; the server's accounts must lend what is published, as those of this version do (deployments/nats/accounts.conf)", context.Cause(e.life))
	}
	return nil
}

// pause ends early with a hint, if given a channel of hints, and when the connection or the
// guest's life changes.
func (e *ear) pause(d time.Duration, hint <-chan struct{}, shaken <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-hint:
		e.owe()
	case <-timer.C:
	case <-shaken:
	case <-e.bus.closed:
	case <-e.life.Done():
	}
}

// count records all hints that have arrived.
func (e *ear) count() {
	for {
		select {
		case <-e.hints:
			e.owe()
		default:
			return
		}
	}
}

// owe records a hint.
func (e *ear) owe() { e.owed, e.tries = e.owed+1, 0 }
