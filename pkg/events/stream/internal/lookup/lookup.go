package lookup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// Reader looks messages up.
type Reader struct {
	on *conn.Conn
	// asks tells that the user of the connection is one whose consumers a provisioner creates.
	asks bool
	// handles caches the streams from which single messages have been read.
	handles sync.Map // name -> jetstream.Stream
}

// New looks up through a connection; asks tells that its user is one for whom a provisioner creates consumers.
func New(on *conn.Conn, asks bool) *Reader { return &Reader{on: on, asks: asks} }

// Last is the newest message of a subject; see [bus.Reader]. One that this process has just
// published is found without the server.
func (r *Reader) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	if m, ok := r.on.Hub.Last(stream, subject); ok {
		r.on.Stats.HandedOver.WithLabelValues(stream).Inc()
		return m, true, nil
	}
	return r.get(ctx, stream, func(ctx context.Context, s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetLastMsgForSubject(ctx, subject)
	})
}

// At is the message at a sequence; see [bus.Reader].
func (r *Reader) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if sequence == 0 {
		return events.Message{}, false, nil
	}
	return r.get(ctx, stream, func(ctx context.Context, s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, sequence)
	})
}

// Next is the first message of a subject from a sequence on; see [bus.Archive].
func (r *Reader) Next(ctx context.Context, stream, subject string, from uint64) (events.Message, bool, error) {
	return r.get(ctx, stream, func(ctx context.Context, s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, max(from, 1), jetstream.WithGetMsgSubject(subject))
	})
}

type getter func(context.Context, jetstream.Stream) (*jetstream.RawStreamMsg, error)

func (r *Reader) get(ctx context.Context, stream string, ask getter) (events.Message, bool, error) {
	handle, err := r.reading(ctx, stream)
	if err != nil {
		return events.Message{}, false, err
	}
	request, done := r.on.Guarded(ctx, stream)
	defer done()
	m, err := ask(request, handle)
	switch {
	case err == nil:
		return delivery.Stored(stream, m), true, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return events.Message{}, false, nil
	}
	return events.Message{}, false, r.readError(ctx, request, stream, err)
}

// readError says why a stream could not be read with a request.
func (r *Reader) readError(ctx, request context.Context, stream string, err error) error {
	// A stream that is gone does not answer direct gets at all.
	if natserr.HasNoListener(err) {
		if _, lookup := r.on.Handle(ctx, stream); errors.Is(lookup, bus.ErrNoStream) {
			err = lookup
		}
	}
	err = natserr.Translate(request, err)
	if natserr.IsPermanent(err) {
		r.handles.Delete(stream)
	}
	return fmt.Errorf("read stream %s: %w", stream, err)
}

// reading gives a stream's cached handle, and looks it up the first time. The cached fact
// (direct gets are allowed) does not change.
func (r *Reader) reading(ctx context.Context, stream string) (jetstream.Stream, error) {
	if known, ok := r.handles.Load(stream); ok {
		return known.(jetstream.Stream), nil
	}
	handle, err := r.on.Handle(ctx, stream)
	if err != nil {
		return nil, err
	}
	r.handles.Store(stream, handle)
	return handle, nil
}

// One request looks up many subjects: the server finds the newest message of each in one pass,
// and sends the found messages in the order of their sequences, with an end marker (ADR-31 of
// NATS). A thousand keys without a history, the usual case, are one request and one answer.

const (
	// lookupMost is how many subjects one request names. The server refuses more than 1,024.
	lookupMost = 512
	// lookupBytes is about how much the server sends for one request, so that many large
	// messages do not exceed what a connection takes in at once. Further requests get the rest.
	lookupBytes = 1 << 20
)

// errNoBatchLookup: the server does not look up many subjects together, or cannot read one of the
// messages.
var errNoBatchLookup = errors.New("no answer for many subjects together")

// LastOf is the newest message of each of many subjects; see [bus.LastReader].
func (r *Reader) LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	found := make(map[string]events.Message, len(subjects))
	together, err := r.canLookUpTogether(ctx, stream, len(subjects))
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(subjects, lookupMost) {
		if together {
			err = r.lookUp(ctx, stream, some, found)
		}
		if !together || errors.Is(err, errNoBatchLookup) {
			err = r.oneByOne(ctx, stream, some, found)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// canLookUpTogether reports whether to look up so many subjects of a stream with one request. A guest's
// request goes through another account, which lets only one message of the answer through.
func (r *Reader) canLookUpTogether(ctx context.Context, stream string, subjects int) (bool, error) {
	if subjects < 2 || r.on.APIPrefix != "" && !r.asks {
		return false, nil
	}
	handle, err := r.reading(ctx, stream)
	return err == nil && handle.CachedInfo().Config.AllowDirect, err
}

// batchLookupSubject is the subject for looking up many subjects of a stream. Other accounts import it
// under a name of its own, since it has many answers.
func (r *Reader) batchLookupSubject(stream string) string {
	if r.asks {
		return access.Many + "." + stream
	}
	return r.on.APISubject(server.JSDirectMsgGetT, stream)
}

func (r *Reader) oneByOne(ctx context.Context, stream string, subjects []string, found map[string]events.Message) error {
	for _, subject := range subjects {
		if _, known := found[subject]; known {
			continue
		}
		m, ok, err := r.Last(ctx, stream, subject)
		if err != nil {
			return err
		}
		if ok {
			found[subject] = m
		}
	}
	return nil
}

// lookUp requests the newest messages of subjects until none are left.
func (r *Reader) lookUp(ctx context.Context, stream string, subjects []string, found map[string]events.Message) error {
	request, done := r.on.Guarded(ctx, stream)
	defer done()
	request, cancel := context.WithTimeout(request, r.on.Timeout)
	defer cancel()
	l := lookup{on: r.on, stream: stream, shaken: r.on.MayHaveMissed(), answers: make(chan *nats.Msg, len(subjects)+1), found: found}
	inbox := r.on.NATS.NewInbox()
	sub, err := r.on.NATS.ChanSubscribe(inbox, l.answers)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
	}
	for left := uint64(1); left > 0 && err == nil; {
		var question []byte
		if question, err = json.Marshal(server.JSApiMsgGetRequest{MultiLastFor: subjects, MaxBytes: lookupBytes}); err == nil {
			err = r.on.NATS.PublishRequest(r.batchLookupSubject(stream), inbox, question)
		}
		if err == nil {
			left, err = l.receive(request)
		}
		subjects = slices.DeleteFunc(slices.Clone(subjects), func(s string) bool { _, known := found[s]; return known })
	}
	if err == nil || errors.Is(err, errNoBatchLookup) {
		return err
	}
	return r.readError(ctx, request, stream, err)
}

// lookup is one request about many subjects.
type lookup struct {
	on      *conn.Conn
	stream  string
	shaken  <-chan struct{}
	answers chan *nats.Msg
	found   map[string]events.Message
}

// receive reads one answer to its end, and returns how many messages are left.
func (l *lookup) receive(ctx context.Context) (left uint64, err error) {
	for last := uint64(0); ; {
		m, err := l.next(ctx)
		if err != nil {
			return 0, err
		}
		if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
			return l.end(m, status, last)
		}
		if before, _ := delivery.Number(m.Header.Get(delivery.LastHeader)); before != last {
			return 0, fmt.Errorf("%w: message %d came behind %d", delivery.ErrMayHaveMissed, before, last)
		}
		found, err := lookedUp(l.stream, m)
		if err != nil {
			return 0, err
		}
		last = found.Sequence
		l.found[found.Subject] = found
	}
}

func (l *lookup) next(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-l.answers:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.on.Closed():
		return nil, bus.ErrClosed
	case <-l.shaken:
		return nil, delivery.ErrMayHaveMissed
	}
}

// end reads the end marker of an answer.
func (l *lookup) end(m *nats.Msg, status string, last uint64) (left uint64, err error) {
	switch what := m.Header.Get("Description"); {
	case status == "503":
		return 0, nats.ErrNoResponders
	case status == "404" && what == "No Results":
		return 0, nil
	case status != "204":
		return 0, fmt.Errorf("%w: %s %s", errNoBatchLookup, status, what)
	}
	if at, _ := delivery.Number(m.Header.Get(delivery.LastHeader)); at != last {
		return 0, fmt.Errorf("%w: the last message is %d, and %d was received", delivery.ErrMayHaveMissed, at, last)
	}
	left, ok := delivery.Number(m.Header.Get("Nats-Num-Pending"))
	if !ok || left > 0 && last == 0 {
		return 0, fmt.Errorf("%w: %d messages are left, and none came", errNoBatchLookup, left)
	}
	return left, nil
}

// lookedUp converts a message of an answer.
func lookedUp(stream string, m *nats.Msg) (events.Message, error) {
	sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return events.Message{}, fmt.Errorf("read the sequence of a message: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return events.Message{}, fmt.Errorf("read the time of message %d: %w", sequence, err)
	}
	return delivery.Stored(stream, &jetstream.RawStreamMsg{
		Subject: m.Header.Get(jetstream.SubjectHeader), Sequence: sequence, Header: m.Header, Data: m.Data, Time: at,
	}), nil
}
