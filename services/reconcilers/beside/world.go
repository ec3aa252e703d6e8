package beside

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// remembered is how many changes of each kind the history can go back.
	remembered = 4096
	// behind is how old KCM's view may be when it acts: its caches are hardly behind,
	// but its rate limit may delay what it has decided.
	behind = 15 * time.Second
)

// world is the present state, and the recent past.
type world struct {
	sight *cache.History
	kinds map[kinds.Name]kinds.Kind
	at    events.Position
	// trail are the last changes of each kind, newest last: their sequences,
	// namespaces and times.
	trail  map[kinds.Name][]mark
	epochs events.Epochs
	now    time.Time // time of the last change, or of a wake
}

type mark struct {
	sequence  uint64
	namespace string
	at        time.Time
}

func newWorld() *world {
	return &world{
		sight: cache.NewHistory(remembered), kinds: map[kinds.Name]kinds.Kind{}, at: events.Position{},
		trail: map[kinds.Name][]mark{}, epochs: events.Epochs{},
	}
}

// begin sets the initial state of a kind.
func (w *world) begin(kind kinds.Kind, sequence uint64, there []cache.Fact) {
	w.sight.Begin(kind, sequence, there, true)
	w.kinds[kind.Name], w.at[kind.Name] = kind, sequence
}

// pass is one change, with the positions before it.
type pass struct {
	before   events.Position
	was, now reconcile.Object
}

// fold adds the next message of a kind.
func (w *world) fold(a arrival) pass {
	name, ref := a.kind.Name, a.delta.Ref
	p := pass{before: maps.Clone(w.at), was: w.object(w.at, a.kind, ref)}
	w.sight.Fold(name, []cache.Fact{cache.Read(a.kind, a.message)})
	w.at[name] = a.message.Sequence
	w.pass(a.delta.At)
	if ref.Name != "" {
		p.now = w.object(w.at, a.kind, ref)
		w.trail[name] = append(w.trail[name], mark{a.message.Sequence, ref.Namespace, w.now})
		if surplus := len(w.trail[name]) - remembered/2; surplus > remembered/4 {
			w.trail[name] = append([]mark(nil), w.trail[name][surplus:]...)
		}
	}
	return p
}

// pass advances the clock, which never goes back.
func (w *world) pass(to time.Time) {
	if to.After(w.now) {
		w.now = to
	}
}

func (w *world) object(at events.Position, kind kinds.Kind, ref events.Ref) reconcile.Object {
	if ref.Name == "" {
		return reconcile.Object{}
	}
	s, err := w.sight.ViewAt(at, nil)
	if err != nil {
		return reconcile.Object{}
	}
	object, _ := s.Get(kind.Name, ref.Namespace, ref.Name) // nil if it does not exist
	return reconcile.Object{Kind: kind, Object: object}
}

// back is the position of a kind that is some changes of a namespace behind; ok is
// false if that is not remembered.
func (w *world) back(at events.Position, kind kinds.Name, changes int, namespace string) (sequence uint64, ok bool) {
	trail := w.trail[kind]
	for i := len(trail) - 1; i >= 0 && changes > 0; i-- {
		m := trail[i]
		if w.now.Sub(m.at) > behind {
			break
		}
		if m.sequence > at[kind] || namespace != "" && m.namespace != "" && m.namespace != namespace {
			continue
		}
		if changes--; changes == 0 {
			return m.sequence - 1, true
		}
	}
	return 0, false
}

// get is an object at some positions.
func get(s reconcile.Snapshot, ref events.Ref) metav1.Object {
	object, _ := s.Get(ref.Kind, ref.Namespace, ref.Name) // nil if it does not exist
	return object
}
