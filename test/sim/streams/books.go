package streams

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// Book is the streams of one controller.
type Book struct {
	bus       *Bus
	Turns     []events.Turn
	Stored    []time.Time     // when each turn was
	Lasts     map[Lane]uint64 // the last turn of each
	Outcomes  []events.Outcome
	Newest    map[Lane]int // the last outcome of each, by its place; from 1
	SettledAt []time.Time  // when each outcome was stored
	// put is when the outcome of a turn was stored: within two minutes the book stores the same
	// outcome once.
	put   map[Place]time.Time
	Fired []events.Wake
	// Breaks counts how often the outcomes were truncated behind a reader.
	Breaks int

	Work *Durable
}

// Place is the position of a turn, or its former position if the stream has lost its end.
type Place struct {
	Sequence uint64
	At       time.Time
}

// Lane is a lane of a key.
type Lane struct {
	Key  events.Key
	Lane events.Lane
}

// Open creates the book of a controller.
func (b *Bus) Open(controller string) *Book {
	k := &Book{bus: b, Lasts: map[Lane]uint64{}, Newest: map[Lane]int{}, put: map[Place]time.Time{}}
	k.Work = b.durable(func() int { return len(k.Turns) })
	b.Books[controller] = k
	return k
}

// Store stores a turn, if the last one of its key and lane is as expected.
func (k *Book) Store(t events.Turn, expect uint64) (uint64, error) {
	at := Lane{t.Key, t.Lane}
	if k.Lasts[at] != expect {
		return 0, bus.ErrOvertaken
	}
	k.Turns, k.Stored = append(k.Turns, t), append(k.Stored, k.bus.now())
	k.Lasts[at] = uint64(len(k.Turns))
	return k.Lasts[at], nil
}

// Settle stores the outcome of the turn at a place.
func (k *Book) Settle(o events.Outcome, at Place) {
	const window = 2 * time.Minute
	if before, known := k.put[at]; known && k.bus.now().Sub(before) < window {
		return
	}
	k.put[at] = k.bus.now()
	k.Outcomes, k.SettledAt = append(k.Outcomes, o), append(k.SettledAt, k.bus.now())
	k.Newest[Lane{o.Key, o.Lane}] = len(k.Outcomes)
}

// Place is the place of a turn.
func (k *Book) Place(sequence uint64) Place { return Place{sequence, k.Stored[sequence-1]} }

// Holds reports whether the turn of a place still exists.
func (k *Book) Holds(at Place) bool {
	return at.Sequence <= uint64(len(k.Turns)) && k.Place(at.Sequence) == at
}

// Decided reports whether a turn has an outcome.
func (k *Book) Decided(turn uint64) bool {
	_, known := k.put[k.Place(turn)]
	return known
}

// Skew bounds the difference between the clocks of the servers that stamp messages.
const Skew = time.Second

// Last is the newest turn and outcome of a key and lane. It ignores an outcome that is older
// than the turn at its place, or of a turn that was decided at another time: it belongs to a
// lost turn.
func (k *Book) Last(at Lane) (sequence uint64, turn *events.Turn, outcome *events.Outcome) {
	if sequence = k.Lasts[at]; sequence > 0 {
		turn = &k.Turns[sequence-1]
	}
	if i := k.Newest[at]; i > 0 {
		o := k.Outcomes[i-1]
		if outcome = &o; sequence == 0 || o.Turn < sequence {
			return sequence, turn, outcome
		}
		old := k.SettledAt[i-1].Add(Skew).Before(k.Stored[sequence-1])
		if old || o.Turn == sequence && !o.IsOf(sequence, turn.Now) || o.Decided.Add(Skew).Before(turn.Now) {
			o.Turn = sequence - 1
		}
	}
	return sequence, turn, outcome
}

// Settled reports whether the turn, or a later one of its key and lane, has an outcome.
func (k *Book) Settled(t events.Turn, at Place) bool {
	i := k.Newest[Lane{t.Key, t.Lane}]
	if i == 0 || k.SettledAt[i-1].Add(Skew).Before(at.At) {
		return false
	}
	o := k.Outcomes[i-1]
	return o.Turn > at.Sequence || o.IsOf(at.Sequence, t.Now)
}

// LoseTurns removes the last turns. Their outcomes remain.
func (k *Book) LoseTurns(n int) {
	left := max(len(k.Turns)-n, 0)
	k.Turns, k.Stored = k.Turns[:left:left], k.Stored[:left:left]
	k.Lasts = map[Lane]uint64{}
	for i, t := range k.Turns {
		k.Lasts[Lane{t.Key, t.Lane}] = uint64(i + 1)
	}
	k.Work.cut(uint64(left))
}

// LoseOutcomes removes the last outcomes.
func (k *Book) LoseOutcomes(n int) {
	left := max(len(k.Outcomes)-n, 0)
	for _, o := range k.Outcomes[left:] {
		if o.Turn <= uint64(len(k.Turns)) {
			delete(k.put, k.Place(o.Turn))
		}
	}
	k.Outcomes, k.SettledAt = k.Outcomes[:left:left], k.SettledAt[:left:left]
	k.Newest = map[Lane]int{}
	for i, o := range k.Outcomes {
		k.Newest[Lane{o.Key, o.Lane}] = i + 1
	}
	k.Breaks++
}
