package record

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Filter selects parts of the record. Empty fields do not filter.
type Filter struct {
	Kinds       []kinds.Name // only deltas of these; no turns or outcomes
	Controllers []string     // only turns and outcomes of these; no deltas
	Namespace   string
	Name        string
}

// Happening is one message of the record, in readable form.
type Happening struct {
	Time     time.Time `json:"time"`
	Noun     string    `json:"noun"` // delta, turn or outcome
	Who      string    `json:"who"`  // the field manager, or the controller
	About    string    `json:"about"`
	What     string    `json:"what"`
	Stream   string    `json:"stream"`
	Sequence uint64    `json:"sequence"`
	// Object is the object of a delta, or the object of a turn's key if the turn names its kind.
	// Of an outcome it has no kind, and of a gap only the kind.
	Object events.Ref `json:"object"`
	// Event is what a delta did to its object, as far as the delta alone shows.
	Event Event `json:"event,omitempty"`
	// Lane is the name of the lane of a turn or an outcome, and Turn the turn of an outcome.
	Lane string `json:"lane,omitempty"`
	Turn uint64 `json:"turn,omitempty"`
	// Failed is true for an outcome in which a command failed.
	Failed bool `json:"failed,omitempty"`
	// Gap is the gap that the message reports; nil for other messages.
	Gap *Gap `json:"gap,omitempty"`
}

// Tail passes messages that are stored from now on to the handler, until the context ends. It
// calls the handler from one goroutine at a time.
//
// Errors: those of the handler; a stream cannot be followed.
func (r *Record) Tail(ctx context.Context, f Filter, handle func(Happening) error) error {
	return r.TailFrom(ctx, f, func() error { return nil }, handle)
}

// TailFrom is [Record.Tail] for callers that also read the past: it passes every message stored
// after the call of begun to the handler, so that the caller can read the earlier ones from the
// record.
//
// Errors: also those of begun.
func (r *Record) TailFrom(ctx context.Context, f Filter, begun func() error, handle func(Happening) error) error {
	streams, err := r.streams(ctx, f)
	if err != nil {
		return err
	}
	ends := make([]uint64, len(streams))
	if err := parallel.Each(ctx, len(streams), func(ctx context.Context, i int) error {
		at, err := r.bus.StreamState(ctx, streams[i])
		ends[i] = at.Last
		return err
	}); err != nil {
		return err
	}
	if err := begun(); err != nil {
		return err
	}
	var mu sync.Mutex
	err = parallel.Do(ctx, len(streams), len(streams), func(ctx context.Context, i int) error {
		return r.bus.Follow(ctx, streams[i], ends[i]+1, func(batch []events.Message) error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range batch {
				h, ok := happening(m, f)
				if !ok {
					continue
				}
				if err := handle(h); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if ctx.Err() != nil {
		return nil // the normal end
	}
	return err
}

// streams are the streams that may match the filter. Naming only kinds leaves out turns and
// outcomes, and naming only controllers leaves out deltas.
func (r *Record) streams(ctx context.Context, f Filter) ([]string, error) {
	all, err := r.bus.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	controllers, err := r.bus.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, k := range all {
		if slices.Contains(f.Kinds, k.Name) || len(f.Kinds) == 0 && len(f.Controllers) == 0 {
			out = append(out, subject.LogStream(k.Name))
		}
	}
	for _, c := range controllers {
		if slices.Contains(f.Controllers, c) || len(f.Kinds) == 0 && len(f.Controllers) == 0 {
			out = append(out, subject.TurnStream(c), subject.OutcomeStream(c))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("kinds %v, controllers %v: %w; there are the controllers %v", f.Kinds, f.Controllers, ErrNotThere, controllers)
	}
	return out, nil
}

func (f Filter) wants(namespace, name string) bool {
	return (f.Namespace == "" || f.Namespace == namespace) && (f.Name == "" || f.Name == name)
}

func happening(m events.Message, f Filter) (h Happening, ok bool) {
	h = Happening{Time: m.Time, Stream: m.Stream, Sequence: m.Sequence}
	if _, isDelta := subject.KindOfStream(m.Stream); isDelta {
		return h, h.delta(m, f)
	}
	controller, lane, key, err := subject.ParseTurn(m.Subject)
	if err != nil || !f.wants(key.Namespace, key.Name) {
		return h, false
	}
	h.Who, h.About, h.Lane = controller, key.String(), lane.String()
	h.Object = events.Ref{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}
	if m.Stream == subject.TurnStream(controller) {
		var t events.Turn
		if err := events.DecodeJSON(m, &t); err != nil {
			return h, false
		}
		h.Noun, h.What = "turn", fmt.Sprintf("%s: %s", lane, t.Because)
		if h.Object.Kind == "" {
			h.Object.Kind = t.Kind
		}
		if n := len(t.Commands); n > 0 {
			h.What += fmt.Sprintf(" (%d × %s)", n, t.Commands[0].Verb)
		}
		return h, true
	}
	var o events.Outcome
	if err := events.DecodeJSON(m, &o); err != nil {
		return h, false
	}
	h.Noun, h.What, h.Turn = "outcome", fmt.Sprintf("of turn %d:", o.Turn), o.Turn
	counted := map[events.Status]int{}
	for _, result := range o.Results {
		counted[result.Status]++
	}
	h.What += Counts(counted)
	if failure, failed := o.Failure(); failed {
		h.Failed = true
		h.What += ": " + failure.Message
	}
	return h, true
}

func (h *Happening) delta(m events.Message, f Filter) bool {
	e, err := entryOf(m)
	if err != nil || e.Op == events.Mark || e.Op != events.Gap && !f.wants(e.Ref.Namespace, e.Ref.Name) {
		return false
	}
	h.Noun, h.About, h.Object, h.Event = "delta", e.Ref.String(), e.Ref, eventOf(e)
	if e.Proven {
		h.Who = e.By.Name
	}
	switch {
	case e.Op == events.Gap:
		g := gapOf(e)
		h.Noun, h.About, h.What, h.Object, h.Event, h.Gap = "gap", string(e.Kind), g.String(), events.Ref{Kind: e.Kind}, "", &g
		return true
	case e.Op == events.Gone:
		h.What = "gone"
	case e.Sync:
		h.What = "said again"
	case e.Deleting:
		h.What = "is being deleted"
	case e.Generation > 0:
		h.What = fmt.Sprintf("generation %d", e.Generation)
	}
	if e.By.Subresource != "" && e.Proven {
		h.What += " " + e.By.Subresource
	}
	h.What += " @" + e.ResourceVersion
	return true
}

// eventOf is the event that a delta alone shows; a comparison with the previous delta shows
// more.
func eventOf(e Entry) Event {
	switch {
	case e.Op == events.Gone:
		return Ended
	case e.Sync:
		return Kept
	case e.Deleting:
		return Leaving
	case e.Before.Known && e.Before.Sequence == 0:
		return Created
	default:
		return Changed
	}
}

// Counts writes how often each status occurs, in a fixed order.
func Counts(of map[events.Status]int) (text string) {
	order := []events.Status{
		events.Applied, events.Answered, events.Unchanged, events.DryRun, events.Conflict, events.Absent, events.Refused, events.Failed, events.Skipped,
	}
	for _, s := range order {
		if of[s] > 0 {
			text += fmt.Sprintf(" %d %s", of[s], s)
		}
	}
	return text
}
