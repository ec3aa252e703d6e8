package page

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record"
)

// errAsked: the request is invalid.
var errAsked = errors.New("the question cannot be answered")

// trouble is the body of an error response.
type trouble struct {
	Code  string `json:"code"`
	Error string `json:"error"`
	// Begins is when the record begins, if the request is about a moment before that.
	Begins time.Time `json:"begins,omitzero"`
}

// patience is the time-out of an answer.
const patience = time.Minute

// answer makes a handler from a function that answers a request.
func (p *page) answer(find func(ctx context.Context, a *ask) (any, error)) http.HandlerFunc {
	return p.bounded(func(w http.ResponseWriter, q *http.Request) {
		if err := p.reachable(); err != nil {
			fail(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(q.Context(), patience)
		defer cancel()
		found, err := find(ctx, &ask{page: p, values: q.URL.Query()})
		if err != nil {
			fail(w, err)
			return
		}
		write(w, http.StatusOK, found)
	})
}

// errAway: the bus does not answer.
var errAway = errors.New("the bus does not answer")

// reachable is an error if the bus is away, so that requests fail at once and not by a
// time-out.
func (p *page) reachable() error {
	b, ok := p.archive.(interface{ Healthy() error })
	if !ok {
		return nil
	}
	if err := b.Healthy(); err != nil {
		return errors.Join(errAway, err)
	}
	return nil
}

// fail answers with an error, as text and as a code that the page knows.
func fail(w http.ResponseWriter, err error) {
	var before *record.BeforeRecord
	switch {
	case errors.As(err, &before):
		write(w, http.StatusNotFound, trouble{Code: "before", Error: err.Error(), Begins: before.Begins})
	case errors.Is(err, errAsked):
		say(w, http.StatusBadRequest, "asked", err)
	case errors.Is(err, record.ErrNotThere):
		say(w, http.StatusNotFound, "absent", err)
	case errors.Is(err, errAway), errors.Is(err, bus.ErrClosed):
		say(w, http.StatusServiceUnavailable, "away", err)
	case errors.Is(err, context.DeadlineExceeded):
		say(w, http.StatusGatewayTimeout, "slow", errors.New("the bus has not answered in time: it is away, or has too much to do"))
	case errors.Is(err, context.Canceled):
		// The client no longer waits for an answer.
	default:
		say(w, http.StatusInternalServerError, "broken", err)
	}
}

func say(w http.ResponseWriter, status int, code string, err error) {
	write(w, status, trouble{Code: code, Error: err.Error()})
}

func write(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil { // cannot happen: the value was decoded from JSON
		status, text = http.StatusInternalServerError, []byte(`{"code":"broken","error":"the answer cannot be written"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error means that the client is gone
}
