package standing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Standing is the state of one key in one controller.
type Standing struct {
	Controller string     `json:"controller"`
	Key        events.Key `json:"key"`
	// Object is the newest version of the key's object; nil when there is none.
	Object *record.Version `json:"object,omitempty"`
	// Looked is how far the reconcilers have processed the object's kind.
	Looked *Look `json:"looked,omitempty"`
	// Turns are the last turns of the key, one per lane.
	Turns []Last `json:"turns,omitempty"`
	// Stalled is why the controller decides nothing at the moment, for any key; nil when it is
	// not known to be stalled.
	Stalled *report.Stall `json:"stalled,omitempty"`
	// Unwatched is why the object's kind is not watched; nil when it is.
	Unwatched *report.Unwatched `json:"unwatched,omitempty"`
	// Wake is the scheduled wake of the key.
	Wake *events.Wake `json:"wake,omitempty"`
}

// Look is how far the reconcilers have processed a kind's log.
type Look struct {
	// Answered is the sequence up to which they have acknowledged every change, Position the
	// sequence of the object's newest delta. If Answered has reached Position and there is no
	// turn, the controller has looked at the object and wanted nothing.
	Answered uint64 `json:"answered"`
	Position uint64 `json:"position"`
	Pending  int    `json:"pending"`
}

// Last is the last turn of a key in a lane, with its outcome. Lane is the name of the lane
// ([events.Lane.String]).
type Last struct {
	Lane            string           `json:"lane"`
	Turn            uint64           `json:"turn"`
	Because         string           `json:"because"`
	At              time.Time        `json:"at"`
	Commands        int              `json:"commands"`
	ResourceVersion string           `json:"resourceVersion,omitempty"`
	Generation      int64            `json:"generation,omitempty"`
	Attempt         int              `json:"attempt,omitempty"`
	Repeats         uint64           `json:"repeats,omitempty"`
	Trouble         string           `json:"trouble,omitempty"` // why the turn cannot be read
	Outcome         *OutcomeStanding `json:"outcome,omitempty"`
}

// OutcomeStanding summarizes the outcome of a turn.
type OutcomeStanding struct {
	At      time.Time             `json:"at"`
	Results map[events.Status]int `json:"results"`
	// Failure is the first failed result, in words.
	Failure string `json:"failure,omitempty"`
}

// Standing gives the state of an object's key in a controller.
//
// Errors: [record.ErrNotThere], when there is no such controller.
func (r *Reader) Standing(ctx context.Context, kind kinds.Kind, ref events.Ref, controller string) (*Standing, error) {
	have, err := r.bus.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(have, controller) {
		return nil, fmt.Errorf("the controller %q is %w; there are %s", controller, record.ErrNotThere, strings.Join(have, ", "))
	}
	s := &Standing{Controller: controller, Key: events.Key{Namespace: ref.Namespace, Name: ref.Name}}
	object, newest, err := r.record.Newest(ctx, kind, ref)
	if err != nil {
		return nil, err
	}
	s.Object = object
	if s.Looked, err = r.look(ctx, kind, newest); err != nil {
		return nil, err
	}
	running, err := r.Running(ctx)
	if err != nil {
		return nil, err
	}
	if stall, ok := running.Stall(controller); ok {
		s.Stalled = &stall
	}
	for _, u := range running.Unwatched {
		if u.Kind == kind.Name {
			s.Unwatched = &u
		}
	}
	own, spanning := s.Key, events.Key(ref)
	for _, key := range []events.Key{own, spanning} {
		turns, err := r.lasts(ctx, controller, key)
		if err != nil {
			return nil, err
		}
		if s.Wake, err = r.wake(ctx, controller, key); err != nil {
			return nil, err
		}
		if s.Turns = turns; len(turns) > 0 || s.Wake != nil {
			s.Key = key
			break
		}
	}
	return s, nil
}

// look is how far the reconcilers have processed a kind: the replica that is furthest behind
// counts. It is nil when no replica reads the kind.
func (r *Reader) look(ctx context.Context, kind kinds.Kind, position uint64) (*Look, error) {
	consumers, err := r.bus.Consumers(ctx, subject.LogStream(kind.Name))
	if err != nil {
		return nil, err
	}
	var found *Look
	for _, c := range consumers {
		switch behind := c.Pending + c.Unanswered; {
		case c.Ended:
		case found == nil:
			found = &Look{Answered: c.Answered, Position: position, Pending: behind}
		default:
			found.Answered, found.Pending = min(found.Answered, c.Answered), max(found.Pending, behind)
		}
	}
	return found, nil
}

func (r *Reader) lasts(ctx context.Context, controller string, key events.Key) ([]Last, error) {
	var found []Last
	for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus, events.LanePark} {
		m, ok, err := r.bus.Last(ctx, subject.TurnStream(controller), subject.Turn(controller, lane, key))
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		l := lastOf(lane, m)
		if l.Outcome, err = r.outcomeOf(ctx, controller, key, lane, m.Sequence); err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	return found, nil
}

func lastOf(lane events.Lane, m events.Message) Last {
	var t events.Turn
	l := Last{Lane: lane.String(), Turn: m.Sequence, At: m.Time}
	if err := events.DecodeJSON(m, &t); err != nil {
		l.Trouble = err.Error()
		return l
	}
	l.Because, l.At, l.Commands, l.Attempt, l.Repeats = t.Because, t.Now, len(t.Commands), t.Attempt, t.Repeats
	l.ResourceVersion, l.Generation = t.ResourceVersion, t.Generation
	return l
}

func (r *Reader) outcomeOf(ctx context.Context, controller string, key events.Key, lane events.Lane, turn uint64) (*OutcomeStanding, error) {
	m, ok, err := r.bus.Last(ctx, subject.OutcomeStream(controller), subject.Outcome(controller, lane, key))
	var o events.Outcome
	if err != nil || !ok || events.DecodeJSON(m, &o) != nil || o.Turn != turn {
		return nil, err
	}
	s := &OutcomeStanding{At: o.At, Results: map[events.Status]int{}}
	for _, result := range o.Results {
		s.Results[result.Status]++
	}
	if f, failed := o.Failure(); failed {
		s.Failure = strings.TrimSpace(fmt.Sprintf("%v: %s %s", f.Ref, f.Reason, f.Message))
	}
	return s, nil
}

// wake is the wake scheduled for a key.
func (r *Reader) wake(ctx context.Context, controller string, key events.Key) (*events.Wake, error) {
	m, ok, err := r.bus.Last(ctx, subject.WakeStream, subject.Schedule(controller, key))
	w := new(events.Wake)
	if err != nil || !ok || events.DecodeJSON(m, w) != nil {
		return nil, err
	}
	return w, nil
}

// Parked is a parked key.
type Parked struct {
	Controller string     `json:"controller"`
	Key        events.Key `json:"key"`
	Reason     string     `json:"reason"`
	At         time.Time  `json:"at"`
	// Since is the reason of a later turn of the key, which shows that the key is no longer
	// parked. If it is empty, there is no such turn; the key may be unparked all the same, if
	// its controller wanted nothing.
	Since string `json:"since,omitempty"`
}

// Parked are the keys that were parked according to the record, by controller and key.
func (r *Reader) Parked(ctx context.Context) ([]Parked, error) {
	controllers, err := r.bus.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	var out []Parked
	for _, controller := range controllers {
		newest := map[string]events.Message{}
		p := bus.Passage{Stream: subject.TurnStream(controller), Subject: subject.Parks(controller)}
		err := r.bus.Read(ctx, p, func(batch []events.Message) error {
			for _, m := range batch {
				newest[m.Subject] = m
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for at, m := range newest {
			_, _, key, err := subject.ParseTurn(at)
			if err != nil {
				continue // a subject that is not ours
			}
			l := lastOf(events.LanePark, m)
			parked := Parked{Controller: controller, Key: key, Reason: l.Because + l.Trouble, At: l.At}
			turns, err := r.lasts(ctx, controller, key)
			if err != nil {
				return nil, err
			}
			for _, later := range turns {
				if later.Lane != events.LanePark.String() && later.Turn > m.Sequence {
					parked.Since = later.Because
				}
			}
			out = append(out, parked)
		}
	}
	slices.SortFunc(out, func(a, b Parked) int {
		return strings.Compare(a.Controller+" "+a.Key.String(), b.Controller+" "+b.Key.String())
	})
	return out, nil
}

// Lag is how far a consumer is behind its stream; without a consumer it describes the stream.
type Lag struct {
	Stream   string    `json:"stream"`
	Consumer string    `json:"consumer,omitempty"` // empty: the stream itself
	Last     uint64    `json:"last"`
	Messages uint64    `json:"messages,omitempty"`
	Stored   time.Time `json:"stored,omitzero"` // when the newest message was stored
	Answered uint64    `json:"answered,omitempty"`
	// Behind is the number of unanswered messages; Again is how many were delivered more than
	// once.
	Behind int       `json:"behind"`
	Again  int       `json:"again,omitempty"`
	Active time.Time `json:"active,omitzero"`
	// Stalled, of an entry for a controller instead of a stream, is why the controller decides
	// nothing.
	Stalled *report.Stall `json:"stalled,omitempty"`
	// Unwatched, of an entry for a watcher instead of a stream, is a kind that it cannot watch.
	Unwatched *report.Unwatched `json:"unwatched,omitempty"`
}

// Lags are the stalled controllers, and all streams with the lag of their consumers. The durable
// consumers are those of the reconcilers on the logs of kinds, one for each replica, and those
// of the writer on the streams of turns.
func (r *Reader) Lags(ctx context.Context) ([]Lag, error) {
	streams, err := r.streams(ctx)
	if err != nil {
		return nil, err
	}
	parts := make([][]Lag, len(streams))
	err = parallel.Each(ctx, len(streams), func(ctx context.Context, i int) (err error) {
		parts[i], err = r.lagsOf(ctx, streams[i].name)
		return err
	})
	if err != nil {
		return nil, err
	}
	stalled, err := r.stalled(ctx)
	return slices.Concat(append([][]Lag{stalled}, parts...)...), err
}

// stream is the name of a stream, and its kind or controller.
type stream struct{ name, of string }

// streams are those of services: the log of every kind, then the turns and outcomes of every
// controller, each sorted by name.
func (r *Reader) streams(ctx context.Context) (all []stream, err error) {
	served, err := r.bus.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	controllers, err := r.bus.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range served {
		all = append(all, stream{subject.LogStream(k.Name), string(k.Name)})
	}
	for _, c := range controllers {
		all = append(all, stream{subject.TurnStream(c), c}, stream{subject.OutcomeStream(c), c})
	}
	return all, nil
}

// stalled are the stalled controllers and the kinds that cannot be watched. If no reconcilers
// run at all, there is a single entry for that, too.
func (r *Reader) stalled(ctx context.Context) (all []Lag, err error) {
	running, err := r.Running(ctx)
	if err != nil {
		return nil, err
	}
	if running.Known && running.Replicas == 0 {
		none := report.Stall{Controller: "reconcilers", Condition: report.NotRunning}
		all = append(all, Lag{Consumer: none.Controller, Stalled: &none})
	}
	for _, s := range running.Stalled {
		all = append(all, Lag{Consumer: s.Controller, Stalled: &s})
	}
	for _, u := range running.Unwatched {
		all = append(all, Lag{Consumer: "watcher", Unwatched: &u})
	}
	return all, nil
}

func (r *Reader) lagsOf(ctx context.Context, stream string) ([]Lag, error) {
	at, err := r.bus.StreamState(ctx, stream)
	if err != nil {
		return nil, err
	}
	own := Lag{Stream: stream, Last: at.Last, Messages: at.Messages}
	if m, ok, err := r.bus.At(ctx, stream, at.Last); err == nil && ok {
		own.Stored = m.Time
	}
	consumers, err := r.bus.Consumers(ctx, stream)
	if err != nil {
		return nil, err
	}
	out := []Lag{own}
	for _, c := range consumers {
		if c.Ended {
			continue
		}
		out = append(out, Lag{
			Stream: stream, Consumer: c.Name, Last: at.Last, Stored: own.Stored,
			Answered: c.Answered, Behind: c.Pending + c.Unanswered, Again: c.Again, Active: c.Active,
		})
	}
	return out, nil
}
