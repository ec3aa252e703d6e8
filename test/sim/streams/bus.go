package streams

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

// Bus is a simulated version of the streams: the logs of kinds, and the books of controllers.
type Bus struct {
	now      func() time.Time
	Kinds    map[kinds.Name]*Stream
	Books    map[string]*Book
	wakes    []events.Wake // set and not fired, one for each key
	subjects map[events.Ref]string
	ackWait  time.Duration // of deliveries
	// LoseAcks is how many of the next answers to deliveries are lost.
	LoseAcks int
}

// Stream is the log of a kind. Sequences count from 1, so a message's place is its sequence less
// one.
type Stream struct {
	Kind   kinds.Kind
	Log    []*message
	newest map[events.Ref]uint64 // by object; the zero Ref is for marks
	tally  events.Tally          // of the objects that exist
	// Breaks counts how often the log lost messages that readers knew, and Made how often it was
	// recreated.
	Breaks, Made int
}

type message struct {
	Sequence uint64
	Delta    events.Delta
	wire     events.Message
}

// New returns a bus with an empty log for each kind.
func New(now func() time.Time, served []kinds.Kind) *Bus {
	b := &Bus{now: now, Kinds: map[kinds.Name]*Stream{}, Books: map[string]*Book{}, subjects: map[events.Ref]string{}, ackWait: claim.AckWait}
	for _, k := range served {
		b.Kinds[k.Name] = &Stream{Kind: k, newest: map[events.Ref]uint64{}}
	}
	return b
}

// Append stores a delta at the end of its kind's log, if the log ends where its publisher
// expects.
func (b *Bus) Append(d events.Delta, expect uint64) error {
	s := b.Kinds[d.Kind]
	if uint64(len(s.Log)) != expect {
		return bus.ErrOvertaken
	}
	s.tally.Fold(d)
	if d.Census = s.tally.Census(); d.Op == events.Mark {
		d.Since = s.since()
	}
	m := &message{Sequence: expect + 1, Delta: d, wire: events.EncodeDelta(d)}
	m.wire.Subject = b.subject(d)
	m.wire.Stream, m.wire.Sequence, m.wire.Time = subject.LogStream(d.Kind), m.Sequence, b.now()
	s.Log = append(s.Log, m)
	s.newest[d.Ref] = m.Sequence
	return nil
}

func (b *Bus) subject(d events.Delta) string {
	at := d.Ref
	if at.Name == "" {
		at.Kind = d.Kind
	}
	text, ok := b.subjects[at]
	if !ok {
		text = subject.Of(d)
		b.subjects[at] = text
	}
	return text
}

// Current reports whether no later message is about the same object.
func (s *Stream) Current(m *message) bool { return s.newest[m.Delta.Ref] == m.Sequence }

// End is the last sequence of the log.
func (s *Stream) End() uint64 { return uint64(len(s.Log)) }

// since is the message since which every existing object has been recorded, for the next mark.
func (s *Stream) since() uint64 {
	since := s.End() + 1
	for _, sequence := range s.newest {
		if sequence < since && s.Log[sequence-1].Delta.Op == events.Is {
			since = sequence
		}
	}
	return since
}

// Begin is the message with which a reader of the log begins that ends at a sequence.
func (s *Stream) Begin(end uint64) uint64 {
	for i := int(end) - 1; i >= 0; i-- {
		if d := s.Log[i].Delta; d.Op == events.Mark {
			return d.Since
		}
	}
	return 1
}

// Read returns the messages behind one sequence and up to another, at most so many.
func (s *Stream) Read(from, to uint64, most int) (batch []events.Message) {
	for ; from < to && len(batch) < most; from++ {
		batch = append(batch, s.Log[from].wire)
	}
	return batch
}

// Live is the newest delta of an object.
func (s *Stream) Live(ref events.Ref) (events.Delta, bool) {
	if at := s.newest[ref]; at > 0 {
		return s.Log[at-1].Delta, true
	}
	return events.Delta{}, false
}

// Epochs are the epochs of the newest deltas of some kinds.
func (b *Bus) Epochs(some iter.Seq[kinds.Name]) events.Epochs {
	found := events.Epochs{}
	for kind := range some {
		if s := b.Kinds[kind]; s != nil && len(s.Log) > 0 {
			found[kind] = s.Log[len(s.Log)-1].Delta.Epoch
		}
	}
	return found
}

// Lose removes the last messages of the log, like a power failure that hits messages not yet on
// disk.
func (s *Stream) Lose(n int) {
	s.Log = s.Log[: len(s.Log)-min(n, len(s.Log)) : len(s.Log)-min(n, len(s.Log))]
	s.newest, s.tally = map[events.Ref]uint64{}, events.Tally{}
	for _, m := range s.Log {
		s.newest[m.Delta.Ref] = m.Sequence
		s.tally.Fold(m.Delta)
	}
	s.Breaks++
}

// Empty recreates the log.
func (s *Stream) Empty() {
	s.Log, s.newest, s.tally = nil, map[events.Ref]uint64{}, events.Tally{}
	s.Breaks++
	s.Made++
}

// Schedule sets a wake; the last one of a key counts.
func (b *Bus) Schedule(w events.Wake) {
	b.unschedule(w)
	b.wakes = append(b.wakes, w)
}

func (b *Bus) unschedule(w events.Wake) {
	b.wakes = slices.DeleteFunc(b.wakes, func(o events.Wake) bool { return o.Controller == w.Controller && o.Key == w.Key })
}

// Fire turns wakes that are due into messages.
func (b *Bus) Fire() {
	if !slices.ContainsFunc(b.wakes, func(w events.Wake) bool { return !w.At.After(b.now()) }) {
		return
	}
	for _, w := range slices.Clone(b.wakes) {
		if !w.At.After(b.now()) {
			b.unschedule(w)
			k := b.Books[w.Controller]
			k.Fired = append(k.Fired, w)
		}
	}
}

// Due considers the times of redeliveries and wakes.
func (b *Bus) Due(consider func(time.Time)) {
	for _, w := range b.wakes {
		consider(w.At)
	}
	for _, k := range b.Books {
		k.Work.due(consider)
	}
}
