package standing

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
	"github.com/millrace/millrace/pkg/events/subject"
)

// heldWithin is how far back Held reads: a held key is decided again at least every
// [events.HeldRetry], so its newest outcome is not older.
const heldWithin = 4 * events.HeldRetry

// Held is a key whose writes a write limit holds.
type Held struct {
	Controller string     `json:"controller"`
	Key        events.Key `json:"key"`
	// Object, UID and Generation identify the key's object as the decision saw it. They are empty
	// for a key that names no object; its writes cannot be approved.
	Object     events.Ref `json:"object,omitzero"`
	UID        types.UID  `json:"uid,omitempty"`
	Generation int64      `json:"generation,omitempty"`
	// Turn is the newest turn that was held, At when, and Because its reason.
	Turn    uint64    `json:"turn"`
	At      time.Time `json:"at"`
	Because string    `json:"because"`
	// Writes are the held writes, by limit.
	Writes []HeldWrites `json:"writes"`
}

// HeldWrites are the writes of a turn that a limit holds.
type HeldWrites struct {
	Limit string `json:"limit"`
	// Denied is true if a person has denied them.
	Denied bool `json:"denied,omitempty"`
	Writes int  `json:"writes"`
	// First is the first of these writes, such as "delete pods shop/web-1".
	First   string `json:"first"`
	Message string `json:"message"`
}

// Held are the keys whose writes were held at a moment, by controller and key.
func (r *Reader) Held(ctx context.Context, at time.Time) ([]Held, error) {
	controllers, err := r.bus.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	parts := make([][]Held, len(controllers))
	err = parallel.Each(ctx, len(controllers), func(ctx context.Context, i int) (err error) {
		parts[i], err = r.heldOf(ctx, controllers[i], at.Add(-heldWithin))
		return err
	})
	all := slices.Concat(parts...)
	slices.SortFunc(all, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.Controller, b.Controller), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return all, err
}

// heldOf are the keys of one controller whose newest outcome since a moment has held writes.
func (r *Reader) heldOf(ctx context.Context, controller string, since time.Time) (all []Held, err error) {
	newest := map[events.Key]events.Outcome{}
	p := bus.Passage{Stream: subject.OutcomeStream(controller), Since: since}
	err = r.bus.Read(ctx, p, func(batch []events.Message) error {
		for _, m := range batch {
			var o events.Outcome
			if _, lane, key, err := subject.ParseTurn(m.Subject); err == nil && lane == events.LaneWrite && events.DecodeJSON(m, &o) == nil {
				newest[key] = o
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for key, o := range newest {
		if !slices.ContainsFunc(o.Results, events.Result.Held) {
			continue
		}
		h := Held{Controller: controller, Key: key, Turn: o.Turn, At: o.At}
		m, there, err := r.bus.At(ctx, subject.TurnStream(controller), o.Turn)
		var t events.Turn
		if err != nil {
			return nil, err
		}
		if !there || events.DecodeJSON(m, &t) != nil {
			continue // the turn is no longer kept
		}
		if h.Because = t.Because; t.UID != "" {
			h.Object = events.Ref{Kind: cmp.Or(t.Kind, key.Kind), Namespace: key.Namespace, Name: key.Name}
			h.UID, h.Generation = t.UID, t.Generation
		}
		h.Writes = heldWrites(t, o)
		all = append(all, h)
	}
	return all, nil
}

func heldWrites(t events.Turn, o events.Outcome) (all []HeldWrites) {
	for _, r := range o.Results {
		if !r.Held() {
			continue
		}
		i := slices.IndexFunc(all, func(w HeldWrites) bool { return w.Limit == r.Cause })
		if i < 0 {
			w := HeldWrites{Limit: r.Cause, Denied: r.Reason == events.Denied, First: r.Ref.String(), Message: r.Message}
			if r.Command >= 0 && r.Command < len(t.Commands) {
				w.First = string(t.Commands[r.Command].Verb) + " " + w.First
			}
			all, i = append(all, w), len(all)
		}
		all[i].Writes++
	}
	return all
}
