package lookup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
)

// TestAnAnswerToManyQuestions: an answer is used only as far as no message can be missing from
// it.
func TestAnAnswerToManyQuestions(t *testing.T) {
	t.Parallel()
	message := func(sequence, before int) *nats.Msg {
		return &nats.Msg{Data: []byte("{}"), Header: nats.Header{
			"Nats-Subject": {fmt.Sprint("turn.", sequence)}, "Nats-Sequence": {fmt.Sprint(sequence)},
			"Nats-Time-Stamp": {"2026-01-02T03:04:05Z"}, delivery.LastHeader: {fmt.Sprint(before)},
		}}
	}
	status := func(code, what string, last, left int) *nats.Msg {
		return &nats.Msg{Header: nats.Header{
			"Status": {code}, "Description": {what}, delivery.LastHeader: {fmt.Sprint(last)}, "Nats-Num-Pending": {fmt.Sprint(left)},
		}}
	}
	undated := message(3, 0)
	undated.Header.Set("Nats-Time-Stamp", "at noon")
	for name, c := range map[string]struct {
		answer []*nats.Msg
		found  int
		left   uint64
		err    error  // that it is
		word   string // in the error, where it is no error that callers know
	}{
		"nothing":                         {answer: []*nats.Msg{status("404", "No Results", 0, 0)}},
		"two":                             {answer: []*nats.Msg{message(3, 0), message(8, 3), status("204", "EOB", 8, 0)}, found: 2},
		"two, and there are more":         {answer: []*nats.Msg{message(3, 0), message(8, 3), status("204", "EOB", 8, 5)}, found: 2, left: 5},
		"one got lost":                    {answer: []*nats.Msg{message(3, 0), message(9, 8)}, found: 1, err: delivery.ErrMayHaveMissed},
		"the first got lost":              {answer: []*nats.Msg{message(8, 3)}, err: delivery.ErrMayHaveMissed},
		"the last got lost":               {answer: []*nats.Msg{message(3, 0), status("204", "EOB", 8, 0)}, found: 1, err: delivery.ErrMayHaveMissed},
		"one that the server cannot read": {answer: []*nats.Msg{message(3, 0), status("404", "Message Not Found", 0, 0)}, found: 1, err: errNoBatchLookup},
		"too many":                        {answer: []*nats.Msg{status("413", "Too Many Results", 0, 0)}, err: errNoBatchLookup},
		"more, without end":               {answer: []*nats.Msg{status("204", "EOB", 0, 5)}, err: errNoBatchLookup},
		"no such stream":                  {answer: []*nats.Msg{status("503", "", 0, 0)}, err: nats.ErrNoResponders},
		"without a time":                  {answer: []*nats.Msg{undated}, word: "read the time of message 3"},
		"shaken":                          {err: delivery.ErrMayHaveMissed},
	} {
		come, shaken := make(chan *nats.Msg, len(c.answer)), make(chan struct{})
		for _, m := range c.answer {
			come <- m
		}
		if len(c.answer) == 0 {
			close(shaken)
		}
		l := lookup{on: conn.New(conn.Options{}), stream: "TURN_c", shaken: shaken, answers: come, found: map[string]events.Message{}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // which passes only where what is missing goes unnoticed
		left, err := l.receive(ctx)
		cancel()
		if c.word != "" && (err == nil || !strings.Contains(err.Error(), c.word)) || c.word == "" && !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v %s", name, err, c.err, c.word)
		}
		if left != c.left || len(l.found) != c.found {
			t.Errorf("%s: found %d, %d are left; want %d and %d", name, len(l.found), left, c.found, c.left)
		}
	}
	l := lookup{on: conn.New(conn.Options{}), answers: make(chan *nats.Msg), shaken: make(chan struct{})}
	l.on.Close()
	if _, err := l.next(t.Context()); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("the bus is closed: %v, want ErrClosed", err)
	}
}

// TestWhereAMessageWasFound: what the server says about a message is not the message's.
func TestWhereAMessageWasFound(t *testing.T) {
	t.Parallel()
	m, err := lookedUp("TURN_c", &nats.Msg{Data: []byte("{}"), Header: nats.Header{
		"Nats-Stream": {"TURN_c"}, "Nats-Subject": {"turn.c"}, "Nats-Sequence": {"7"}, "Nats-Time-Stamp": {"2026-01-02T03:04:05.000000006Z"},
		"Nats-Num-Pending": {"0"}, delivery.LastHeader: {"0"}, "Content-Type": {"application/json"},
	}})
	if at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC); err != nil || m.Subject != "turn.c" || m.Sequence != 7 || !m.Time.Equal(at) {
		t.Errorf("found %+v, %v", m, err)
	}
	if len(m.Header) != 1 || m.Get("Content-Type") != "application/json" {
		t.Errorf("the message has the headers %v, want Content-Type alone", m.Header)
	}
}
