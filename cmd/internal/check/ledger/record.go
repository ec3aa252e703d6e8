package ledger

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Record reads the streams.
type Record struct {
	bus         bus.Archive
	controllers []string
	canary      []string // the encodings of the value that must not appear
	leaks       []string
}

// NewRecord reads the streams of the controllers, and of every kind. canary is the value
// of a Secret, which must not be in any of them.
func NewRecord(b bus.Archive, controllers []string, canary string) *Record {
	return &Record{bus: b, controllers: controllers, canary: []string{canary, base64.StdEncoding.EncodeToString([]byte(canary))}}
}

// patience is the time-out of reading one stream.
const patience = 2 * time.Minute

// Read adds the contents of the streams to a history.
//
// Errors: a stream cannot be read, or has a message that is not Millrace's.
func (r *Record) Read(ctx context.Context, h *check.History) error {
	h.Logs = map[kinds.Name][]check.Entry{}
	known, err := r.bus.Kinds(ctx)
	if err != nil {
		return err
	}
	for _, k := range known {
		if h.Logs[k.Name], err = r.deltas(ctx, subject.LogStream(k.Name)); err != nil {
			return err
		}
	}
	for _, c := range r.controllers {
		if err := r.decisions(ctx, c, h); err != nil {
			return err
		}
	}
	if err := r.each(ctx, subject.WakeStream, func(events.Message) error { return nil }); err != nil {
		return err
	}
	h.Leaks = append(h.Leaks, r.leaks...)
	return nil
}

func (r *Record) deltas(ctx context.Context, stream string) ([]check.Entry, error) {
	var all []check.Entry
	err := r.each(ctx, stream, func(m events.Message) error {
		ref, err := subject.ParseDelta(m.Subject)
		if err != nil {
			return err
		}
		d, err := events.DecodeDelta(ref, m)
		if err != nil {
			return err
		}
		all = append(all, check.Entry{
			Sequence: m.Sequence, Op: d.Op, Ref: d.Ref, UID: d.UID, Revision: parse(d.ResourceVersion), Epoch: d.Epoch, Sync: d.Sync,
			Since: d.Since, At: m.Time, Why: why(d),
		})
		return nil
	})
	return all, err
}

// why is the reason of a gap.
func why(d events.Delta) string {
	var hole events.Hole
	if d.Op != events.Gap || json.Unmarshal(d.Body, &hole) != nil {
		return ""
	}
	return hole.Reason
}

func (r *Record) decisions(ctx context.Context, controller string, h *check.History) error {
	if err := r.each(ctx, subject.TurnStream(controller), func(m events.Message) error {
		t := check.Turn{Sequence: m.Sequence, At: m.Time}
		if err := events.DecodeJSON(m, &t.Turn); err != nil {
			return err
		}
		t.Shapes, t.Notices = nil, nil
		for i := range t.Commands {
			t.Commands[i].Body = nil
		}
		h.Turns = append(h.Turns, t)
		return nil
	}); err != nil {
		return err
	}
	return r.each(ctx, subject.OutcomeStream(controller), func(m events.Message) error {
		o := check.Outcome{Sequence: m.Sequence, At: m.Time}
		if err := events.DecodeJSON(m, &o.Outcome); err != nil {
			return err
		}
		h.Outcomes = append(h.Outcomes, o)
		return nil
	})
}

// each calls take for every message of a stream, and searches it for the canary. A stream that
// does not exist has no messages. The message with the last sequence may have been removed.
func (r *Record) each(ctx context.Context, stream string, take func(events.Message) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := r.bus.Read(ctx, bus.Passage{Stream: stream}, func(batch []events.Message) error {
		for _, m := range batch {
			r.search(fmt.Sprintf("message %d of %s", m.Sequence, stream), m.Data, []byte(fmt.Sprint(m.Subject, m.Header)))
			if err := take(m); err != nil {
				return fmt.Errorf("message %d: %w", m.Sequence, err)
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, bus.ErrNoStream):
		return nil
	case err != nil:
		return fmt.Errorf("read all of %s: %w", stream, err)
	}
	return nil
}

func (r *Record) search(where string, texts ...[]byte) {
	for _, text := range texts {
		for _, form := range r.canary {
			if bytes.Contains(text, []byte(form)) {
				r.leaks = append(r.leaks, where)
			}
		}
	}
}

// Search searches every file below a directory for the canary.
//
// Errors: a file cannot be read.
func (r *Record) Search(dir string, h *check.History) error {
	r.leaks = nil
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		r.search(path, text)
		return err
	})
	h.Leaks = append(h.Leaks, r.leaks...)
	return err
}
