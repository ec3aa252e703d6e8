package cache

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// History is a cache that can go back to an earlier position. It folds the logs of kinds as
// [Cache] folds them, records what each message changed, and shows the objects at exactly the
// positions that a turn had seen. Turns of several replicas have seen more and less by turns;
// History folds nothing twice for that.
//
// It is for one goroutine. It maps nothing to keys and opens no engine.
type History struct {
	cache  *Cache
	tracks map[kinds.Name]*track
	most   int // steps kept of each kind; 0: all
	reader *reader
}

// track is a History's state of one kind.
type track struct {
	kind  *kindCache
	steps []step
	at    int // how many of the steps are applied to the cache
	begin step
	head  uint64 // the last message folded
	whole bool   // nothing is known to be missing up to head
	chain events.Chain
	shown uint64 // [events.Census.Of] of the present step
}

// step is the state of a kind from one message on, until the next step.
type step struct {
	sequence uint64
	census   events.Census
	whole    bool // nothing is known to be missing
	sight    events.Sight
	ref      events.Ref
	was, now *state // state of ref; nil: it did not exist
}

// Fact is a decoded message of a kind's log.
type Fact struct {
	fact
	message events.Message // without its body
}

// Read decodes a message of a kind's log, which is most of the work of folding it. It is safe
// for concurrent use.
func Read(kind kinds.Kind, m events.Message) Fact {
	f := Fact{fact: readBy((*fact).decodeOwners, kind, m), message: m}
	f.message.Data, f.delta.Body = nil, nil
	return f
}

// ReadDelta is Read for a delta that has been decoded already.
func ReadDelta(kind kinds.Kind, sequence uint64, d events.Delta) Fact {
	f := Fact{fact: fact{sequence: sequence, delta: d}}
	f.decodeOwners(kind)
	f.delta.Body = nil
	return f
}

// Sequence is the message's sequence in its log.
func (f Fact) Sequence() uint64 { return f.sequence }

// NewHistory makes an empty History. It keeps up to most changes of each kind, and drops the
// oldest ones; 0 is without bound.
func NewHistory(most int) *History {
	return &History{cache: New(), tracks: map[kinds.Name]*track{}, most: most, reader: &reader{}}
}

// Begin starts a kind behind the message of its log at sequence, 0 for the beginning, from the
// messages that hold the state at that point, in any order. whole reports whether they are
// complete.
func (h *History) Begin(kind kinds.Kind, sequence uint64, there []Fact, whole bool) {
	h.cache.Follow(kind)
	t := &track{kind: h.cache.kinds[kind.Name], whole: whole, head: sequence}
	h.tracks[kind.Name] = t
	// In the order of the log, because the last message decides about the kind itself.
	there = slices.SortedStableFunc(slices.Values(there), func(a, b Fact) int { return cmp.Compare(a.sequence, b.sequence) })
	for _, f := range there {
		h.cache.fold(t.kind, f.fact)
	}
	t.begin = step{sequence: sequence, census: t.kind.tally.Census(), whole: whole, sight: t.kind.sight}
	t.show()
}

// Known is the range of sequences of the kind's log that History can show. ok is false for a
// kind that has not begun.
func (h *History) Known(kind kinds.Name) (from, head uint64, ok bool) {
	t, ok := h.tracks[kind]
	if !ok {
		return 0, 0, false
	}
	return t.begin.sequence, t.head, true
}

// Fold takes in the next messages of a kind's log, in order. Begin must have been called for
// the kind.
func (h *History) Fold(kind kinds.Name, facts []Fact) {
	t := h.tracks[kind]
	h.move(t, len(t.steps))
	for _, f := range facts {
		h.fold(t, f)
	}
	t.at = len(t.steps)
	h.trim(t)
	t.show()
}

func (h *History) fold(t *track, f Fact) {
	// A message with wrong checksums says nothing, not even which message it follows.
	if f.broken == nil {
		if hole, ok := t.chain.Next(f.message, f.delta); !ok {
			t.whole = false
			t.add(step{sequence: max(hole.From, t.last().sequence), census: t.kind.tally.Census(), sight: t.kind.sight})
		}
	}
	at := nameOf(f.delta.Ref)
	s := step{sequence: f.sequence, was: t.state(at)}
	_, changed := h.cache.fold(t.kind, f.fact)
	t.head = max(t.head, f.sequence)
	s.census, s.sight = t.kind.tally.Census(), t.kind.sight
	switch {
	case f.broken != nil, f.damage != "":
		t.whole = false
	case t.kind.told.Known:
		t.whole = t.kind.told == s.census
	}
	s.whole = t.whole
	if s.ref = f.delta.Ref; changed {
		s.now = t.state(at)
		dropDecoded(s.was)
	} else {
		s.ref, s.was = events.Ref{}, nil
	}
	if last := t.last(); changed || s.census != last.census || s.whole != last.whole || s.sight != last.sight {
		t.add(s)
	}
}

// state is the state of the object under a name, nil if there is none.
func (t *track) state(at types.NamespacedName) *state {
	if h, ok := t.kind.objects[at]; ok {
		return h.state
	}
	return nil
}

func (t *track) add(s step) { t.steps = append(t.steps, s) }

// last is the newest step, present the one that the cache is at.
func (t *track) last() step { return t.stepAt(len(t.steps)) }

func (t *track) present() step { return t.stepAt(t.at) }

func (t *track) stepAt(n int) step {
	if n == 0 {
		return t.begin
	}
	return t.steps[n-1]
}

func (t *track) show() { t.shown = t.present().census.Of(t.kind.kind.Name) }

// trim drops the oldest steps, many at a time.
func (h *History) trim(t *track) {
	if h.most == 0 || len(t.steps) < 2*h.most {
		return
	}
	drop := len(t.steps) - h.most
	t.begin = t.steps[drop-1]
	t.steps = append([]step(nil), t.steps[drop:]...)
	t.at -= drop
}

// move brings the cache to another step.
func (h *History) move(t *track, to int) {
	if t.at == to {
		return
	}
	for ; t.at > to; t.at-- {
		s := t.steps[t.at-1]
		h.put(t, s.ref, s.was)
	}
	for ; t.at < to; t.at++ {
		s := t.steps[t.at]
		h.put(t, s.ref, s.now)
	}
	t.kind.sight = t.present().sight
	t.show()
}

func (h *History) put(t *track, ref events.Ref, is *state) {
	at := nameOf(ref) // empty for a step without an object: nothing is held there
	if is != nil {
		h.cache.put(t.kind, at, &cachedObject{ref, is})
	} else if old, ok := t.kind.objects[at]; ok {
		h.cache.drop(t.kind, old)
	}
}

// TurnView is the view of a turn.
type TurnView struct {
	// Snapshot is valid until the next call of a method of the History.
	reconcile.Snapshot
	// Digest is the digest that a turn with this view records ([events.Turn]).
	Digest uint64
	// Incomplete are the kinds of which messages or objects are known to be missing, in no order.
	Incomplete []kinds.Name
	// AskedUnheard becomes true when a controller asks when an object was last heard, and that
	// object has changed without a heartbeat since. A reader that began with the newest
	// versions took the change for a heartbeat.
	AskedUnheard *bool
}

// ViewAt gives the view at positions: of the kinds in seen, and of no others. last gives the
// outcomes for [reconcile.Snapshot].
//
// Errors: a position is older than the History keeps, or of a kind that has not begun.
func (h *History) ViewAt(seen events.Position, last func(events.Key, events.Lane) (events.Outcome, bool)) (TurnView, error) {
	s := TurnView{AskedUnheard: new(bool)}
	for kind, position := range seen {
		t, ok := h.tracks[kind]
		if !ok || position < t.begin.sequence {
			return TurnView{}, fmt.Errorf("message %d of the log of %s is further back than is remembered", position, kind)
		}
		if t.head <= position {
			h.move(t, len(t.steps))
		} else {
			h.move(t, sort.Search(len(t.steps), func(i int) bool { return t.steps[i].sequence > position }))
		}
		s.Digest += t.shown
		if !t.present().whole {
			s.Incomplete = append(s.Incomplete, kind)
		}
	}
	h.restrict(seen)
	s.Snapshot = Snapshot{cache: h.cache, reader: h.reader, last: last, earlier: s.AskedUnheard}
	return s, nil
}

// restrict limits the reader to the kinds in seen: a kind that the turn's replica did not
// follow did not exist for it.
func (h *History) restrict(seen events.Position) {
	same := len(h.reader.inputs) == len(seen)
	for kind := range seen {
		same = same && h.reader.inputs[kind] != nil
	}
	if same {
		return
	}
	h.reader = &reader{inputs: map[kinds.Name][]reconcile.Input{}}
	for kind := range seen {
		h.reader.inputs[kind] = []reconcile.Input{{}}
	}
}
