package shell

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// History is a memory that goes back as well as forth: it folds the logs of kinds
// as [Memory] folds them, remembers what each message changed, and shows what there
// was at exactly the positions that a turn had seen. Turns of several replicas have
// seen more and less by turns; nothing is folded twice for that.
//
// It is for one goroutine. It maps nothing to keys and opens no engine.
type History struct {
	memory *Memory
	tracks map[kinds.Name]*track
	most   int // steps that are remembered of a kind; 0: all
	reader *reader
}

// track is what a History knows of one kind.
type track struct {
	kind  *kindMemory
	steps []step
	at    int // so many of the steps are in the memory
	begin step
	head  uint64 // the last message folded
	whole bool   // behind it
	chain events.Chain
	shown uint64 // what [events.Census.Of] gives of the present step
}

// step is what there was from a message on, until the next step.
type step struct {
	sequence uint64
	census   events.Census
	whole    bool // nothing is known to be missing
	sight    events.Sight
	ref      events.Ref
	was, now *state // of ref; nil: not there
}

// Fact is a message of a kind's log, read.
type Fact struct {
	fact
	message events.Message // without its body
}

// Read reads a message of a kind's log, which is most of the work of folding it. It
// is safe for concurrent use.
func Read(kind kinds.Kind, m events.Message) Fact {
	f := Fact{fact: readBy((*fact).glance, kind, m), message: m}
	f.message.Data, f.delta.Body = nil, nil
	return f
}

// ReadDelta is Read of a delta that has been decoded already.
func ReadDelta(kind kinds.Kind, sequence uint64, d events.Delta) Fact {
	f := Fact{fact: fact{sequence: sequence, delta: d}}
	f.glance(kind)
	f.delta.Body = nil
	return f
}

// Sequence is the message's place in its log.
func (f Fact) Sequence() uint64 { return f.sequence }

// NewHistory has seen nothing as yet. It remembers at most so many changes of each
// kind, and lets go of the oldest ones; 0 is without bound.
func NewHistory(most int) *History {
	return &History{memory: NewMemory(), tracks: map[kinds.Name]*track{}, most: most, reader: &reader{}}
}

// Begin begins with a kind behind a message of its log, 0 for the beginning, from
// what was there then, in any order; whole tells whether that is everything.
func (h *History) Begin(kind kinds.Kind, sequence uint64, there []Fact, whole bool) {
	h.memory.Follow(kind)
	t := &track{kind: h.memory.kinds[kind.Name], whole: whole, head: sequence}
	h.tracks[kind.Name] = t
	// In the order of the log: what is told of the kind itself is told by the last message.
	there = slices.SortedStableFunc(slices.Values(there), func(a, b Fact) int { return cmp.Compare(a.sequence, b.sequence) })
	for _, f := range there {
		h.memory.fold(t.kind, f.fact)
	}
	t.begin = step{sequence: sequence, census: t.kind.tally.Census(), whole: whole, sight: t.kind.sight}
	t.show()
}

// Known is how far back and forth of a kind can be seen, in sequences of its log; ok
// is false for a kind that nothing has begun with.
func (h *History) Known(kind kinds.Name) (from, head uint64, ok bool) {
	t, ok := h.tracks[kind]
	if !ok {
		return 0, 0, false
	}
	return t.begin.sequence, t.head, true
}

// Fold takes in the next messages of a kind's log, in order. The kind must have
// been begun with.
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
	// A message whose sums do not hold says nothing, not even what it came after.
	if f.broken == nil {
		if hole, ok := t.chain.Next(f.message, f.delta); !ok {
			t.whole = false
			t.add(step{sequence: max(hole.From, t.last().sequence), census: t.kind.tally.Census(), sight: t.kind.sight})
		}
	}
	at := name{f.delta.Ref.Namespace, f.delta.Ref.Name}
	s := step{sequence: f.sequence, was: t.state(at)}
	_, changed := h.memory.fold(t.kind, f.fact)
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
		fade(s.was)
	} else {
		s.ref, s.was = events.Ref{}, nil
	}
	if last := t.last(); changed || s.census != last.census || s.whole != last.whole || s.sight != last.sight {
		t.add(s)
	}
}

// state is that of what is held under a name, nil where nothing is.
func (t *track) state(at name) *state {
	if h, ok := t.kind.objects[at]; ok {
		return h.state
	}
	return nil
}

func (t *track) add(s step) { t.steps = append(t.steps, s) }

// last is the newest step of all, present the one that the memory is at.
func (t *track) last() step { return t.stepAt(len(t.steps)) }

func (t *track) present() step { return t.stepAt(t.at) }

func (t *track) stepAt(n int) step {
	if n == 0 {
		return t.begin
	}
	return t.steps[n-1]
}

func (t *track) show() { t.shown = t.present().census.Of(t.kind.kind.Name) }

// trim lets go of the oldest steps, many at a time.
func (h *History) trim(t *track) {
	if h.most == 0 || len(t.steps) < 2*h.most {
		return
	}
	drop := len(t.steps) - h.most
	t.begin = t.steps[drop-1]
	t.steps = append([]step(nil), t.steps[drop:]...)
	t.at -= drop
}

// move has the memory be at another step.
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
	at := name{ref.Namespace, ref.Name} // of a step without an object: there is none
	if is != nil {
		h.memory.put(t.kind, at, &held{ref, is})
	} else if old, ok := t.kind.objects[at]; ok {
		h.memory.drop(t.kind, old)
	}
}

// Sight is what a turn could see.
type Sight struct {
	// Snapshot is good until the History is asked for something else.
	reconcile.Snapshot
	// Digest is what a turn that saw this has recorded ([events.Turn]).
	Digest uint64
	// Lacking are the kinds of which something is known to be missing, in no order.
	Lacking []kinds.Name
	// Earlier becomes true when a controller asks when an object was heard that has
	// changed without a sign of life since. A reader that began with the newest versions
	// took the change for one.
	Earlier *bool
}

// See gives what there was at positions: of the kinds that are named there, and of no
// others. last is what [reconcile.Snapshot] has of outcomes.
//
// Errors: a position is further back than is remembered, or of a kind that nothing
// has begun with.
func (h *History) See(seen events.Position, last func(events.Key, events.Lane) (events.Outcome, bool)) (Sight, error) {
	s := Sight{Earlier: new(bool)}
	for kind, position := range seen {
		t, ok := h.tracks[kind]
		if !ok || position < t.begin.sequence {
			return Sight{}, fmt.Errorf("message %d of the log of %s is further back than is remembered", position, kind)
		}
		if t.head <= position {
			h.move(t, len(t.steps))
		} else {
			h.move(t, sort.Search(len(t.steps), func(i int) bool { return t.steps[i].sequence > position }))
		}
		s.Digest += t.shown
		if !t.present().whole {
			s.Lacking = append(s.Lacking, kind)
		}
	}
	h.restrict(seen)
	s.Snapshot = scene{memory: h.memory, reader: h.reader, last: last, earlier: s.Earlier}
	return s, nil
}

// restrict has the reader read the kinds that were seen: what was not followed then
// was not there.
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
