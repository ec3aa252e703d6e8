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

// A guest has no consumer to wait on, and asking each stream again and again would be
// most of what the server does. So it listens to what is published, which its account
// is lent too, and asks when it has heard something. What it hears is a hint and nothing
// else: it has no sequence yet, it comes a moment before the message is stored, and the
// message may be refused. So it asks until it has found as much as it heard, a few times
// at most; and seldom where it hears nothing, in case a hint was lost.

const (
	// HeardPrefix is under what guests hear what is published.
	HeardPrefix = access.Heard
	// guestLook is how often a guest looks that hears nothing.
	guestLook = 2 * time.Second
	// guestRest is between two looks where there is always more.
	guestRest = 20 * time.Millisecond
	// storing is the first pause for what was heard and is not stored yet; each one is
	// twice the one before. After patientLooks of them, 0.6 s, nothing is expected any
	// more.
	storing      = 5 * time.Millisecond
	patientLooks = 7
)

// heard is the subject of what is published for a stream; "" where guests do not hear it.
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

// ear tells a guest when to look for what is new in a stream.
type ear struct {
	bus  *Bus
	life context.Context // ends with the refusal where it may not listen
	done func()
	sub  *nats.Subscription // nil where there is nothing to hear

	hints chan struct{} // one for each thing heard, as many as fit
	owed  int           // heard and not found yet
	tries int           // fruitless looks since the last hint
}

// earBacklog is how many hints are counted; beyond it there is enough to look for.
const earBacklog = 1024

func (b *Bus) listen(ctx context.Context, stream string) (*ear, error) {
	e := &ear{bus: b, hints: make(chan struct{}, earBacklog)}
	on := heard(stream)
	if on != "" && b.options.APIPrefix != "" {
		on = HeardPrefix + "." + on // it is another account's
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

// hear is called by the client library's goroutine.
func (e *ear) hear(*nats.Msg) {
	select {
	case e.hints <- struct{}{}:
	default:
	}
}

// found says that a look has found some new messages, none perhaps.
func (e *ear) found(n int) {
	e.owed = max(e.owed-n, 0)
	if n > 0 {
		e.tries = 0
	}
	if e.tries++; e.tries > patientLooks {
		e.owed = 0
	}
}

// wait waits until it is time to look, after a look that has found something or not.
//
// Errors: listening is forbidden. The end of the context is none.
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

// pause ends early with a hint, if that is waited for, and when anything is not as it was.
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

// count takes in the hints that have come.
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

// owe takes in a hint.
func (e *ear) owe() { e.owed, e.tries = e.owed+1, 0 }
