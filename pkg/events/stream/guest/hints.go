package guest

import (
	"context"
	"fmt"
	"strings"
	"time"

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
	// guestPoll is the interval of a guest's reads when it hears nothing.
	guestPoll = 2 * time.Second
	// guestMinPoll is the pause between two reads while each finds something.
	guestMinPoll = 20 * time.Millisecond
	// storing is the first pause for a message that was heard and is not stored yet; each pause
	// doubles the one before. After quickReads of them, 0.6 s, the guest expects nothing any
	// more.
	storing    = 5 * time.Millisecond
	quickReads = 7
)

// hintSubject is the subject of the messages that are published for a stream; "" if guests do not
// hear them.
func hintSubject(stream string) string {
	if kind, ok := subject.KindOfStream(stream); ok {
		return subject.Log(kind)
	}
	if controller, ok := strings.CutPrefix(stream, subject.TurnStream("")); ok {
		return subject.Turns(controller)
	}
	if controller, ok := strings.CutPrefix(stream, subject.OutcomeStream("")); ok {
		return subject.Outcomes(controller)
	}
	return ""
}

// hintListener tells a guest when to read a stream for new messages.
type hintListener struct {
	closed <-chan struct{}
	ctx    context.Context // ends with the refusal if the guest may not listen
	stop   func()

	hints      chan struct{} // one per heard message, as many as fit
	expected   int           // heard and not found yet
	emptyReads int           // reads without result since the last hint
}

// maxHints bounds the counted hints; more would change nothing.
const maxHints = 1024

func (r *Reader) listen(ctx context.Context, stream string) (*hintListener, error) {
	e := &hintListener{closed: r.Closed, hints: make(chan struct{}, maxHints)}
	on := hintSubject(stream)
	if on != "" && r.Imported {
		on = HeardPrefix + "." + on // imported from another account
	}
	var err error
	if e.ctx, e.stop, err = r.Subscribe(ctx, on, e.onHint); err != nil {
		return nil, err
	}
	return e, nil
}

// onHint runs on the client library's goroutine.
func (e *hintListener) onHint() {
	select {
	case e.hints <- struct{}{}:
	default:
	}
}

// found records that a read has found n new messages, perhaps none.
func (e *hintListener) found(n int) {
	e.expected = max(e.expected-n, 0)
	if n > 0 {
		e.emptyReads = 0
	}
	if e.emptyReads++; e.emptyReads > quickReads {
		e.expected = 0
	}
}

// wait waits until the time of the next read; some reports whether the last one found anything.
//
// Errors: listening is forbidden. The end of the context is no error.
func (e *hintListener) wait(ctx context.Context, shaken <-chan struct{}, some bool) error {
	if some {
		e.pause(guestMinPoll, nil, shaken)
	}
	switch e.count(); {
	case e.expected == 0:
		e.pause(guestPoll, e.hints, shaken)
	case !some && e.emptyReads > 0: // no new hint
		e.pause(storing<<(e.emptyReads-1), nil, shaken)
	}
	e.count()
	if e.ctx.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w; the server's accounts must lend what is published, as those of this version do (deployments/nats/accounts.conf)", context.Cause(e.ctx))
	}
	return nil
}

// pause ends early with a hint, if given a channel of hints, and when the connection or the
// guest's life changes.
func (e *hintListener) pause(d time.Duration, hint <-chan struct{}, shaken <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-hint:
		e.addHint()
	case <-timer.C:
	case <-shaken:
	case <-e.closed:
	case <-e.ctx.Done():
	}
}

// count records all hints that have arrived.
func (e *hintListener) count() {
	for {
		select {
		case <-e.hints:
			e.addHint()
		default:
			return
		}
	}
}

// addHint records a hint.
func (e *hintListener) addHint() { e.expected, e.emptyReads = e.expected+1, 0 }
