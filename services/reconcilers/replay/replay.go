package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Options say what is replayed, and how.
type Options struct {
	// Since and Until bound when the turns were stored; zero: no bound.
	Since, Until time.Time
	// Controllers are the controllers to replay; empty: all that are on record.
	Controllers []string
	// Wanted selects keys; nil: all.
	Wanted func(events.Key) bool
	// Turns are the sequences of the turns to replay, of the only controller; empty:
	// all.
	Turns []uint64
	// Make builds a controller of this code from recorded settings.
	Make func(controller string, settings json.RawMessage) (reconcile.Any, error)
	// Views adds to each case what was seen, and the whole present decision.
	Views bool
	// Remembered is how many changes of each kind the memory can go back; 0 means
	// 16,384. Turns that are further apart need a second pass.
	Remembered int
}

// Run replays an archive, and hands over each turn with its verdict, in the order in
// which they were stored. Turns that needed a second pass follow at the end.
//
// Errors: the archive cannot be read; a requested controller has no recorded turns; the
// errors of each.
func Run(ctx context.Context, archive bus.Archive, o Options, each func(Case) error) (Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Remembered == 0 {
		o.Remembered = 1 << 14
	}
	r := &run{archive: archive, options: o, each: each, crew: newCrew(), kinds: map[kinds.Name]kinds.Kind{}, made: map[string]maker{}}
	if err := r.prepare(ctx); err != nil {
		return Summary{}, err
	}
	turns, err := r.turns(ctx)
	if err != nil {
		return Summary{}, err
	}
	late, err := r.pass(ctx, turns, o.Remembered)
	if err == nil && len(late) > 0 {
		// In this order each turn can be reached from the one before, however far they
		// are apart.
		slices.SortStableFunc(late, func(a, b *recorded) int { return a.turn.Now.Compare(b.turn.Now) })
		_, err = r.pass(ctx, listed(late), 0)
	}
	return r.summary, err
}

// run is one replay.
type run struct {
	archive bus.Archive
	options Options
	each    func(Case) error
	crew    crew
	kinds   map[kinds.Name]kinds.Kind
	names   []string // of controllers
	made    map[string]maker
	summary Summary
}

// maker is a controller as this code builds it, or why it cannot.
type maker struct {
	controller reconcile.Any
	err        error
}

func (r *run) prepare(ctx context.Context) error {
	found, err := r.archive.Kinds(ctx)
	if err != nil {
		return fmt.Errorf("look which kinds are on record: %w", err)
	}
	for _, k := range found {
		r.kinds[k.Name] = k
	}
	have, err := r.archive.Controllers(ctx)
	if err != nil {
		return fmt.Errorf("look which controllers are on record: %w", err)
	}
	if r.names = r.options.Controllers; len(r.names) == 0 {
		r.names = have
	}
	for _, name := range r.names {
		if !slices.Contains(have, name) {
			return fmt.Errorf("replay %s: no turns of it are on record; there are those of %v", name, have)
		}
	}
	return nil
}

// make builds a controller, once for all turns with the same settings.
func (r *run) make(t events.Turn) (reconcile.Any, error) {
	at := t.Controller + "\x00" + string(t.Settings)
	m, ok := r.made[at]
	if !ok {
		m.controller, m.err = r.options.Make(t.Controller, t.Settings)
		r.made[at] = m
	}
	return m.controller, m.err
}

// source returns turns one by one; nil at the end.
type source func() (*recorded, error)

// listed is the source of a list of turns.
func listed(turns []*recorded) source {
	return func() (*recorded, error) {
		if len(turns) == 0 {
			return nil, nil
		}
		t := turns[0]
		turns = turns[1:]
		return t, nil
	}
}

// turns reads the turns of all controllers, in the order in which they were stored.
func (r *run) turns(ctx context.Context) (source, error) {
	feeds := make([]*feed[recorded], len(r.names))
	for i, name := range r.names {
		p := bus.Passage{Stream: subject.TurnStream(name), Since: r.options.Since}
		if n := r.options.Turns; len(n) > 0 {
			p = bus.Passage{Stream: p.Stream, From: slices.Min(n), To: slices.Max(n)}
		} else if p.Since.IsZero() {
			state, err := r.archive.StreamState(ctx, p.Stream)
			if err != nil {
				return nil, fmt.Errorf("read the turns of %s: %w", name, err)
			}
			p.From = state.Whole // of an exported stretch: earlier turns were decided before it
		}
		feeds[i] = open(ctx, r.archive, p, r.crew, r.reader(name))
	}
	return func() (t *recorded, err error) {
		first := -1
		for i, f := range feeds {
			ahead, err := f.more()
			if err != nil {
				return nil, fmt.Errorf("read the turns of %s: %w", r.names[i], err)
			}
			if len(ahead) > 0 && (t == nil || ahead[0].stored.Before(t.stored)) {
				first, t = i, &ahead[0]
			}
		}
		if t != nil {
			feeds[first].take(1)
		}
		return t, nil
	}, nil
}

// reader reads a turn of a controller. It does not decode one that is not wanted.
func (r *run) reader(controller string) func(events.Message) recorded {
	return func(m events.Message) recorded {
		t := recorded{controller: controller, sequence: m.Sequence, stored: m.Time}
		_, of, key, err := subject.ParseTurn(m.Subject)
		if err != nil {
			return t // a foreign subject
		}
		t.lane = of
		t.wanted = (r.options.Wanted == nil || r.options.Wanted(key)) &&
			(r.options.Until.IsZero() || !m.Time.After(r.options.Until)) &&
			(len(r.options.Turns) == 0 || slices.Contains(r.options.Turns, m.Sequence))
		if t.wanted && of != events.LanePark {
			t.err = t.read(m, r.options.Views)
		}
		return t
	}
}
