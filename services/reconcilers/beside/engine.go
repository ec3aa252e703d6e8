package beside

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// engine is one controller in shadow mode.
type engine struct {
	controller reconcile.Any
	described  reconcile.Description
	matcher    *shadow.Matcher
	world      *world
	wakes      map[events.Key]time.Time
	kept       []kept                // findings that this replica has not reported yet, oldest first
	broken     func(events.Key, any) // receives panics
}

// kept is a finding, and when it was found.
type kept struct {
	shadow.Found
	since time.Time
}

// answer is a controller's answer about a key on a view.
type answer struct {
	decision reconcile.Decision
	wants    []shadow.Want
	sight    cache.TurnView
	seen     events.Position
	own      metav1.Object
}

// ask asks the controller on the state at some positions. ok is false after a panic,
// and if that state is not remembered.
func (d *engine) ask(at events.Position, key events.Key, now time.Time, last func(events.Key, events.Lane) (events.Outcome, bool)) (a answer, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			d.broken(key, p)
			a, ok = answer{}, false
		}
	}()
	a.seen = d.reads(at)
	var err error
	if a.sight, err = d.world.sight.ViewAt(a.seen, last); err != nil {
		return answer{}, false
	}
	if a.decision, ok = d.controller.Ask(a.sight, key, now); !ok {
		return answer{sight: a.sight, seen: a.seen}, true
	}
	a.wants = shadow.Wants(a.decision.Commands, func(ref events.Ref) metav1.Object { return get(a.sight, ref) })
	a.own = get(a.sight, d.own(key))
	return a, true
}

// reads are the positions of the kinds that the controller reads.
func (d *engine) reads(at events.Position) events.Position {
	seen := events.Position{}
	for _, in := range d.described.Inputs {
		if in.Every {
			return maps.Clone(at)
		}
		if sequence, ok := at[in.Kind.Name]; ok {
			seen[in.Kind.Name] = sequence
		}
	}
	return seen
}

func (d *engine) own(key events.Key) events.Ref {
	ref := events.Ref(key)
	if d.described.Owns != nil {
		ref.Kind = d.described.Owns.Name
	}
	return ref
}

// keys are the keys to which a change maps, in the order of the mappings.
func (d *engine) keys(was, now reconcile.Object) (keys []events.Key) {
	defer func() {
		if p := recover(); p != nil {
			d.broken(events.Key{}, p)
		}
	}()
	s, err := d.world.sight.ViewAt(d.reads(d.world.at), nil)
	if err != nil {
		return nil
	}
	kind := now.Kind.Name
	if now.None() {
		kind = was.Kind.Name
	}
	for _, in := range d.described.Inputs {
		if in.Keys == nil || !in.Every && in.Kind.Name != kind {
			continue
		}
		for _, k := range in.Keys(s, was, now) {
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// all are the keys to which the existing objects map.
func (d *engine) all() (keys []events.Key) {
	known := map[events.Key]bool{}
	for name, kind := range d.world.kinds {
		s, err := d.world.sight.ViewAt(d.reads(d.world.at), nil)
		if err != nil {
			return nil
		}
		for _, object := range s.List(name, "") {
			for _, k := range d.keys(reconcile.Object{}, reconcile.Object{Kind: kind, Object: object}) {
				if !known[k] {
					known[k], keys = true, append(keys, k)
				}
			}
		}
	}
	slices.SortFunc(keys, func(a, b events.Key) int { return slices.Compare(words(a), words(b)) })
	return keys
}

func words(k events.Key) []string { return []string{string(k.Kind), k.Namespace, k.Name} }

// due are the keys whose wake time is not after now, the earliest first.
func (d *engine) due(now time.Time) (keys []events.Key) {
	for k, at := range d.wakes {
		if !at.After(now) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b events.Key) int {
		if order := d.wakes[a].Compare(d.wakes[b]); order != 0 {
			return order
		}
		return slices.Compare(words(a), words(b))
	})
	return keys
}

// asker asks an engine's controller for its matcher.
type asker struct {
	engine *engine
	at     events.Position
	now    time.Time
}

var _ shadow.Asker = asker{}

// Ask implements [shadow.Asker].
func (a asker) Ask(key events.Key, view shadow.View) ([]shadow.Want, bool) {
	at, ok := a.past(key, view)
	if !ok {
		return nil, false
	}
	answer, ok := a.engine.ask(at, key, a.now.Add(view.Ahead), func(k events.Key, lane events.Lane) (events.Outcome, bool) {
		if k != key || lane != events.LaneWrite || view.Last == nil {
			return events.Outcome{}, false
		}
		return *view.Last, true
	})
	return answer.wants, ok
}

// past are the positions of a view; ok is false if they are not remembered.
func (a asker) past(key events.Key, view shadow.View) (at events.Position, ok bool) {
	at = maps.Clone(a.at)
	for kind, changes := range view.Back {
		if changes == 0 {
			continue
		}
		if at[kind], ok = a.engine.world.back(a.at, kind, changes, key.Namespace); !ok {
			return nil, false
		}
	}
	return at, true
}

// AsGood implements [shadow.Asker].
func (a asker) AsGood(key events.Key, view shadow.View, chosen, other events.Ref) bool {
	chooser, ok := a.engine.controller.(reconcile.Chooser)
	at, known := a.past(key, view)
	if !ok || !known {
		return false
	}
	s, err := a.engine.world.sight.ViewAt(a.engine.reads(at), nil)
	if err != nil {
		return false
	}
	x, y := get(s, chosen), get(s, other)
	return x != nil && y != nil && chooser.Indifferent(s, key, x.GetUID(), y.GetUID(), a.now.Add(view.Ahead))
}

// Object implements [shadow.Asker].
func (a asker) Object(key events.Key) metav1.Object {
	s, err := a.engine.world.sight.ViewAt(a.engine.reads(a.at), nil)
	if err != nil {
		return nil
	}
	return get(s, a.engine.own(key))
}

// turn is the record of an answer in a lane; ok is false if it has no commands there.
func (d *engine) turn(a answer, key events.Key, lane events.Lane, at events.Trigger, code string) (t events.Turn, ok bool) {
	part := a.decision.In(lane)
	t = events.Turn{
		Controller: d.described.Name, Key: key, Lane: lane, Triggers: []events.Trigger{at},
		Seen: a.seen, Digest: a.sight.Digest, Now: d.world.now, Because: part.Because, Commands: part.Commands, Code: code,
	}
	for kind := range a.seen {
		if epoch := d.world.epochs[kind]; epoch > 0 {
			if t.Epochs == nil {
				t.Epochs = events.Epochs{}
			}
			t.Epochs[kind] = epoch
		}
	}
	if a.own != nil {
		t.Kind, t.UID = d.own(key).Kind, a.own.GetUID()
		t.ResourceVersion, t.Generation = a.own.GetResourceVersion(), a.own.GetGeneration()
	}
	if !part.WakeAt.IsZero() {
		wake := part.WakeAt
		t.WakeAt = &wake
	}
	t.Pack()
	return t, len(part.Commands) > 0
}

// names are the kinds that the controllers name, and whether one reads every kind.
func names(controllers []reconcile.Any) (named []kinds.Name, every bool) {
	for _, c := range controllers {
		for _, in := range c.Describe().Inputs {
			if in.Every {
				every = true
			} else if !slices.Contains(named, in.Kind.Name) {
				named = append(named, in.Kind.Name)
			}
		}
	}
	return named, every
}

func (d *engine) String() string { return fmt.Sprintf("shadow of %s", d.described.Name) }
