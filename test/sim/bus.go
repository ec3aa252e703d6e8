package sim

import (
	"iter"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/claim"
)

// Bus is a toy version of the streams: the logs of kinds, and the books of controllers.
type Bus struct {
	now      func() time.Time
	kinds    map[kinds.Name]*stream
	books    map[string]*book
	wakes    []events.Wake // set and not fired, one for each key
	subjects map[events.Ref]string
	// loseAcks is how many of the next answers to deliveries are lost.
	loseAcks int
}

// stream is the log of a kind. Sequences count from 1, so a message's place is its sequence less
// one.
type stream struct {
	kind   kinds.Kind
	log    []*message
	newest map[events.Ref]uint64 // by object; the zero Ref is for marks
	tally  events.Tally          // of the objects that exist
	// breaks counts how often the log lost messages that readers knew, and made how often it was
	// recreated.
	breaks, made int
}

type message struct {
	sequence uint64
	delta    events.Delta
	wire     events.Message
}

func newBus(now func() time.Time, served []kinds.Kind) *Bus {
	b := &Bus{now: now, kinds: map[kinds.Name]*stream{}, books: map[string]*book{}, subjects: map[events.Ref]string{}}
	for _, k := range served {
		b.kinds[k.Name] = &stream{kind: k, newest: map[events.Ref]uint64{}}
	}
	return b
}

// append stores a delta at the end of its kind's log, if the log ends where its publisher
// expects.
func (b *Bus) append(d events.Delta, expect uint64) error {
	s := b.kinds[d.Kind]
	if uint64(len(s.log)) != expect {
		return bus.ErrOvertaken
	}
	s.tally.Fold(d)
	if d.Census = s.tally.Census(); d.Op == events.Mark {
		d.Since = s.since()
	}
	m := &message{sequence: expect + 1, delta: d, wire: events.EncodeDelta(d)}
	m.wire.Subject = b.subject(d)
	m.wire.Stream, m.wire.Sequence, m.wire.Time = subject.LogStream(d.Kind), m.sequence, b.now()
	s.log = append(s.log, m)
	s.newest[d.Ref] = m.sequence
	return nil
}

func (b *Bus) subject(d events.Delta) string {
	at := d.Ref
	if at.Name == "" {
		at.Kind = d.Kind
	}
	text, ok := b.subjects[at]
	if !ok {
		if text = subject.Mark(d.Kind); d.Ref.Name != "" {
			text = subject.Delta(d.Ref)
		}
		b.subjects[at] = text
	}
	return text
}

// current reports whether no later message is about the same object.
func (s *stream) current(m *message) bool { return s.newest[m.delta.Ref] == m.sequence }

// end is the last sequence of the log.
func (s *stream) end() uint64 { return uint64(len(s.log)) }

// since is the message since which every existing object has been recorded, for the next mark.
func (s *stream) since() uint64 {
	since := s.end() + 1
	for _, sequence := range s.newest {
		if sequence < since && s.log[sequence-1].delta.Op == events.Is {
			since = sequence
		}
	}
	return since
}

// begin is the message with which a reader of the log begins that ends at a sequence.
func (s *stream) begin(end uint64) uint64 {
	for i := int(end) - 1; i >= 0; i-- {
		if d := s.log[i].delta; d.Op == events.Mark {
			return d.Since
		}
	}
	return 1
}

// read returns the messages behind one sequence and up to another, at most so many.
func (s *stream) read(from, to uint64, most int) (batch []events.Message) {
	for ; from < to && len(batch) < most; from++ {
		batch = append(batch, s.log[from].wire)
	}
	return batch
}

// live is the newest delta of an object.
func (s *stream) live(ref events.Ref) (events.Delta, bool) {
	if at := s.newest[ref]; at > 0 {
		return s.log[at-1].delta, true
	}
	return events.Delta{}, false
}

// epochs are the epochs of the newest deltas of some kinds.
func (b *Bus) epochs(some iter.Seq[kinds.Name]) events.Epochs {
	found := events.Epochs{}
	for kind := range some {
		if s := b.kinds[kind]; s != nil && len(s.log) > 0 {
			found[kind] = s.log[len(s.log)-1].delta.Epoch
		}
	}
	return found
}

// lose removes the last messages of the log, like a power failure that hits messages not yet on
// disk.
func (s *stream) lose(n int) {
	s.log = s.log[: len(s.log)-min(n, len(s.log)) : len(s.log)-min(n, len(s.log))]
	s.newest, s.tally = map[events.Ref]uint64{}, events.Tally{}
	for _, m := range s.log {
		s.newest[m.delta.Ref] = m.sequence
		s.tally.Fold(m.delta)
	}
	s.breaks++
}

// empty recreates the log.
func (s *stream) empty() {
	s.log, s.newest, s.tally = nil, map[events.Ref]uint64{}, events.Tally{}
	s.breaks++
	s.made++
}

// book is the streams of one controller.
type book struct {
	bus       *Bus
	turns     []events.Turn
	stored    []time.Time     // when each turn was
	lasts     map[lane]uint64 // the last turn of each
	outcomes  []events.Outcome
	newest    map[lane]int // the last outcome of each, by its place; from 1
	settledAt []time.Time  // when each outcome was stored
	// put is when the outcome of a turn was stored: within two minutes the book stores the same
	// outcome once.
	put   map[place]time.Time
	fired []events.Wake
	// carriers are the writers that last began each turn.
	carriers map[place]*carrying
	// breaks counts how often the outcomes were truncated behind a reader.
	breaks int

	work *durable
}

// place is the position of a turn, or its former position if the stream has lost its end.
type place struct {
	sequence uint64
	at       time.Time
}

// lane is a lane of a key.
type lane struct {
	key  events.Key
	lane events.Lane
}

// open creates the book of a controller.
func (b *Bus) open(controller string) *book {
	k := &book{bus: b, lasts: map[lane]uint64{}, newest: map[lane]int{}, put: map[place]time.Time{}, carriers: map[place]*carrying{}}
	k.work = b.durable(func() int { return len(k.turns) })
	b.books[controller] = k
	return k
}

// store stores a turn, if the last one of its key and lane is as expected.
func (k *book) store(t events.Turn, expect uint64) (uint64, error) {
	at := lane{t.Key, t.Lane}
	if k.lasts[at] != expect {
		return 0, bus.ErrOvertaken
	}
	k.turns, k.stored = append(k.turns, t), append(k.stored, k.bus.now())
	k.lasts[at] = uint64(len(k.turns))
	return k.lasts[at], nil
}

// settle stores the outcome of the turn at a place.
func (k *book) settle(o events.Outcome, at place) {
	const window = 2 * time.Minute
	if before, known := k.put[at]; known && k.bus.now().Sub(before) < window {
		return
	}
	k.put[at] = k.bus.now()
	k.outcomes, k.settledAt = append(k.outcomes, o), append(k.settledAt, k.bus.now())
	k.newest[lane{o.Key, o.Lane}] = len(k.outcomes)
}

func (k *book) place(sequence uint64) place { return place{sequence, k.stored[sequence-1]} }

// holds reports whether the turn of a place still exists.
func (k *book) holds(at place) bool {
	return at.sequence <= uint64(len(k.turns)) && k.place(at.sequence) == at
}

// decided reports whether a turn has an outcome.
func (k *book) decided(turn uint64) bool {
	_, known := k.put[k.place(turn)]
	return known
}

// skew bounds the difference between the clocks of the servers that stamp messages.
const skew = time.Second

// last is the newest turn and outcome of a key and lane. It ignores an outcome that is older
// than the turn at its place, or of a turn that was decided at another time: it belongs to a
// lost turn.
func (k *book) last(at lane) (sequence uint64, turn *events.Turn, outcome *events.Outcome) {
	if sequence = k.lasts[at]; sequence > 0 {
		turn = &k.turns[sequence-1]
	}
	if i := k.newest[at]; i > 0 {
		o := k.outcomes[i-1]
		if outcome = &o; sequence == 0 || o.Turn < sequence {
			return sequence, turn, outcome
		}
		old := k.settledAt[i-1].Add(skew).Before(k.stored[sequence-1])
		if old || o.Turn == sequence && !o.IsOf(sequence, turn.Now) || o.Decided.Add(skew).Before(turn.Now) {
			o.Turn = sequence - 1
		}
	}
	return sequence, turn, outcome
}

// loseTurns removes the last turns. Their outcomes remain.
func (k *book) loseTurns(n int) {
	left := max(len(k.turns)-n, 0)
	k.turns, k.stored = k.turns[:left:left], k.stored[:left:left]
	k.lasts = map[lane]uint64{}
	for i, t := range k.turns {
		k.lasts[lane{t.Key, t.Lane}] = uint64(i + 1)
	}
	k.work.cut(uint64(left))
}

// loseOutcomes removes the last outcomes.
func (k *book) loseOutcomes(n int) {
	left := max(len(k.outcomes)-n, 0)
	for _, o := range k.outcomes[left:] {
		if o.Turn <= uint64(len(k.turns)) {
			delete(k.put, k.place(o.Turn))
		}
	}
	k.outcomes, k.settledAt = k.outcomes[:left:left], k.settledAt[:left:left]
	k.newest = map[lane]int{}
	for i, o := range k.outcomes {
		k.newest[lane{o.Key, o.Lane}] = i + 1
	}
	k.breaks++
}

// schedule sets a wake; the last one of a key counts.
func (b *Bus) schedule(w events.Wake) {
	b.unschedule(w)
	b.wakes = append(b.wakes, w)
}

func (b *Bus) unschedule(w events.Wake) {
	b.wakes = slices.DeleteFunc(b.wakes, func(o events.Wake) bool { return o.Controller == w.Controller && o.Key == w.Key })
}

// fire turns wakes that are due into messages.
func (b *Bus) fire() {
	if !slices.ContainsFunc(b.wakes, func(w events.Wake) bool { return !w.At.After(b.now()) }) {
		return
	}
	for _, w := range slices.Clone(b.wakes) {
		if !w.At.After(b.now()) {
			b.unschedule(w)
			k := b.books[w.Controller]
			k.fired = append(k.fired, w)
		}
	}
}

// due considers the times of redeliveries and wakes.
func (b *Bus) due(consider func(time.Time)) {
	for _, w := range b.wakes {
		consider(w.At)
	}
	for _, k := range b.books {
		k.work.due(consider)
	}
}

func (d *durable) due(consider func(time.Time)) {
	consider(d.absent)
	for _, p := range d.pending {
		consider(p.at)
	}
}

// durable is a consumer that knows its messages by sequence. It redelivers a message until it
// is answered.
type durable struct {
	bus     *Bus
	next    uint64 // the last sequence that it has looked at
	length  func() int
	pending []*delivery
	// absent is until when the consumer does not exist; a recreated one was created then.
	absent time.Time
}

// delivery is a message in flight; it is due at a time.
type delivery struct {
	durable  *durable
	sequence uint64
	at       time.Time // not before
	attempts int
}

// window is how many messages may overtake another one.
const window = 64

func (b *Bus) durable(length func() int) *durable { return &durable{bus: b, length: length} }

// ready are the deliveries that are due, in the order in which they came; only the first of
// them if one is enough.
func (d *durable) ready(one bool) []*delivery {
	now := d.bus.now()
	if d.absent.After(now) {
		return nil
	}
	var ready []*delivery
	for _, p := range d.pending {
		if !p.at.After(now) && (!one || ready == nil) && len(ready) < window {
			ready = append(ready, p)
		}
	}
	for d.next < uint64(d.length()) && len(ready) < window && !(one && ready != nil) {
		d.next++
		p := &delivery{durable: d, sequence: d.next}
		d.pending, ready = append(d.pending, p), append(ready, p)
	}
	return ready
}

// some reports whether a delivery is due.
func (d *durable) some() bool {
	if d.next == uint64(d.length()) && len(d.pending) == 0 {
		return false // the usual case
	}
	return len(d.ready(true)) > 0
}

// before reports whether an earlier consumer may have delivered a message that was stored at a
// time. The count of attempts depends on it.
func (d *durable) before(stored time.Time) bool { return stored.Before(d.absent) }

// again recreates the consumer, which takes a while: it delivers everything after a place as if
// for the first time, and nothing before it.
func (d *durable) again(from uint64) {
	d.next, d.pending = from, nil
	d.absent = d.bus.now().Add(claim.AckWait)
}

// cut forgets everything behind the new end of a stream.
func (d *durable) cut(end uint64) {
	d.next = min(d.next, end)
	d.pending = slices.DeleteFunc(d.pending, func(p *delivery) bool { return p.sequence > end })
}

// take delivers a message, which comes again unless it is answered.
func (p *delivery) take() {
	p.attempts++
	p.at = p.durable.bus.now().Add(claim.AckWait)
}

// Ack: never again.
func (p *delivery) Ack() {
	if b := p.durable.bus; b.loseAcks > 0 {
		b.loseAcks--
		return
	}
	d := p.durable
	if i := slices.Index(d.pending, p); i >= 0 {
		d.pending = slices.Delete(d.pending, i, i+1)
	}
}

// NakWithDelay: again after a delay.
func (p *delivery) NakWithDelay(delay time.Duration) { p.at = p.durable.bus.now().Add(delay) }

// InProgress: not answered yet, but being worked on.
func (p *delivery) InProgress() { p.at = p.durable.bus.now().Add(claim.AckWait) }
