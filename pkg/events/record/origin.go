package record

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Origin is the write of ours that made a version of an object.
type Origin struct {
	Controller string
	// Sequence is the turn's, in the controller's stream.
	Sequence uint64
	// Turn is nil when it is no longer stored.
	Turn    *events.Turn
	Result  events.Result
	Outcome events.Outcome
}

// Command is the command of the turn; ok is false when the turn is no longer stored.
func (o *Origin) Command() (c events.Command, ok bool) {
	if o.Turn == nil || o.Result.Command < 0 || o.Result.Command >= len(o.Turn.Commands) {
		return c, false
	}
	return o.Turn.Commands[o.Result.Command], true
}

const (
	// slack is the largest difference between the clocks of the watcher, the writer and the bus,
	// and how far a delta may precede its outcome.
	slack = 5 * time.Second
	// tardy is how long after a version its outcome may be stored: the writer stores the outcome
	// of a large turn when it has carried out all of it.
	tardy = 10 * time.Minute
	// steps limits how many outcomes of one key are read for a version.
	steps = 200
)

// search caches what was read while one question is answered.
type search struct {
	*Record
	controllers []string

	mu    sync.Mutex
	last  map[string]events.Message // by subject of outcomes; a message without a subject: none
	since map[sinceKey]uint64
}

type sinceKey struct {
	stream string
	minute time.Time
}

func (r *Record) begin(ctx context.Context) (*search, error) {
	controllers, err := r.bus.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	return &search{Record: r, controllers: controllers, last: map[string]events.Message{}, since: map[sinceKey]uint64{}}, nil
}

// origin finds the write of ours that made a version, nil when there is none. It searches under
// the keys that may have wanted the version: the object, its owners, and its namespace.
func (s *search) origin(ctx context.Context, e Entry, tree fields.Tree) (*Origin, error) {
	type place struct{ controller, subject string }
	var places []place
	for _, controller := range s.controllers {
		for _, key := range keysOf(e.Ref, tree) {
			for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus} {
				places = append(places, place{controller, subject.Outcome(controller, lane, key)})
			}
		}
	}
	var mu sync.Mutex
	var origin *Origin
	err := parallel.Each(ctx, len(places), func(ctx context.Context, i int) error {
		o, err := s.under(ctx, places[i].controller, places[i].subject, e)
		if err != nil || o == nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		origin = o
		return nil
	})
	if err != nil || origin == nil {
		return nil, err
	}
	return origin, s.recall(ctx, origin)
}

// recall reads the turn of an origin.
func (s *search) recall(ctx context.Context, o *Origin) error {
	m, ok, err := s.bus.At(ctx, subject.TurnStream(o.Controller), o.Sequence)
	if err != nil || !ok {
		return err
	}
	turn := new(events.Turn)
	if err := events.DecodeJSON(m, turn); err != nil {
		return nil //nolint:nilerr // a turn that cannot be read is as good as one that is not kept
	}
	if turn.Key == o.Outcome.Key {
		o.Turn = turn
	}
	return nil
}

// keysOf are the keys whose turns may have written an object.
func keysOf(ref events.Ref, tree fields.Tree) []events.Key {
	keys := []events.Key{
		{Namespace: ref.Namespace, Name: ref.Name}, {Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name},
	}
	if ref.Namespace != "" {
		keys = append(keys, events.Key{Name: ref.Namespace})
	}
	meta, _ := tree["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	for _, o := range owners {
		owner, _ := o.(map[string]any)
		if name, ok := owner["name"].(string); ok {
			keys = append(keys, events.Key{Namespace: ref.Namespace, Name: name})
		}
	}
	return slices.Compact(keys)
}

// under looks for the outcome of a version among those of one key.
func (s *search) under(ctx context.Context, controller, at string, e Entry) (*Origin, error) {
	stream := subject.OutcomeStream(controller)
	last, err := s.lastOutcome(ctx, stream, at)
	if err != nil || last.Subject == "" || last.Time.Before(e.asked()) {
		return nil, err
	}
	if o := made(controller, last, e); o != nil {
		return o, nil
	}
	from, err := s.from(ctx, stream, e.asked())
	if err != nil {
		return nil, err
	}
	for range steps {
		m, ok, err := s.bus.Next(ctx, stream, at, from)
		if err != nil || !ok || m.Time.After(e.Stored.Add(tardy)) {
			return nil, err
		}
		if o := made(controller, m, e); o != nil {
			return o, nil
		}
		from = m.Sequence + 1
	}
	return nil, nil
}

// asked is a moment before the request that made the version.
func (e Entry) asked() time.Time {
	at := e.Stored
	if !e.At.IsZero() && e.At.Before(at) {
		at = e.At
	}
	if made := e.By.Time; !made.IsZero() && made.Before(at) && e.Sync {
		at = made // a list found it, perhaps long afterwards
	}
	return at.Add(-slack)
}

func (s *search) lastOutcome(ctx context.Context, stream, at string) (events.Message, error) {
	s.mu.Lock()
	known, ok := s.last[at]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	m, _, err := s.bus.Last(ctx, stream, at)
	if err != nil {
		return m, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[at] = m
	return m, nil
}

// from is the first sequence of a stream since a moment, or since the start of its minute, which
// is cached.
func (s *search) from(ctx context.Context, stream string, at time.Time) (uint64, error) {
	k := sinceKey{stream, at.Truncate(time.Minute)}
	s.mu.Lock()
	known, ok := s.since[k]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	sequence, _, err := s.first(ctx, stream, bus.Passage{Since: k.minute})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since[k] = sequence
	return sequence, nil
}

// made gives the result, in an outcome, that made a version.
func made(controller string, m events.Message, e Entry) *Origin {
	var o events.Outcome
	if events.DecodeJSON(m, &o) != nil {
		return nil
	}
	for _, r := range o.Results {
		ended := r.Removed && e.Op == events.Gone
		if r.Status == events.Applied && r.Ref == e.Ref && r.UID == e.UID && (r.Version == e.ResourceVersion || ended) {
			return &Origin{Controller: controller, Sequence: o.Turn, Result: r, Outcome: o}
		}
	}
	return nil
}
