package memory

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// stream holds messages. All methods run under the bus's lock.
type stream struct {
	bus      *Bus
	name     string
	kind     *kinds.Kind
	created  time.Time
	keeps    bus.Retention
	coalesce bool // keep the last message of each subject only

	messages map[uint64]events.Message
	order    []uint64 // their sequences, and some of removed messages
	last     uint64
	bytes    int64
	newest   map[string]uint64 // by subject
	ids      map[string]put
	durables map[string]*durable
	readings []*reading
	// changed is closed, and replaced, when something was stored; and closed
	// for good when the stream has ended.
	changed chan struct{}
	ended   bool
}

// ttlHeader tells a server the TTL of a message.
const ttlHeader = "Nats-TTL"

// put is a message that was stored under an id.
type put struct {
	sequence uint64
	at       time.Time
}

func newStream(b *Bus, name string, coalesce bool) *stream {
	return &stream{
		bus: b, name: name, created: b.clock.Now(), coalesce: coalesce,
		messages: map[uint64]events.Message{}, newest: map[string]uint64{}, ids: map[string]put{},
		durables: map[string]*durable{}, changed: make(chan struct{}),
	}
}

// store appends a message, and removes it after ttl unless that is 0.
func (s *stream) store(m events.Message, ttl time.Duration) uint64 {
	if m = events.Seal(m); ttl > 0 {
		m = clone(m)
		m.Header[ttlHeader] = []string{ttl.String()}
	}
	s.insert(m, s.last+1, s.bus.clock.Now(), ttl)
	return s.last
}

func (s *stream) insert(m events.Message, sequence uint64, at time.Time, ttl time.Duration) {
	m = clone(m)
	m.Stream, m.Sequence, m.Time = s.name, sequence, at
	if before, ok := s.newest[m.Subject]; ok && s.coalesce {
		s.remove(before)
	}
	s.last = sequence
	s.messages[sequence] = m
	s.newest[m.Subject] = sequence
	s.order = append(s.order, sequence)
	s.bytes += size(m)
	for s.keeps.Bytes > 0 && s.bytes > s.keeps.Bytes {
		s.remove(s.first())
	}
	if ttl > 0 {
		s.bus.clock.AfterFunc(ttl, func() {
			s.bus.mu.Lock()
			defer s.bus.mu.Unlock()
			if kept, ok := s.messages[sequence]; ok && kept.Time.Equal(at) {
				s.remove(sequence)
			}
		})
	}
	close(s.changed)
	s.changed = make(chan struct{})
	for _, d := range s.durables {
		d.poke()
	}
}

func (s *stream) remove(sequence uint64) {
	m, ok := s.messages[sequence]
	if !ok {
		return
	}
	delete(s.messages, sequence)
	s.bytes -= size(m)
	if s.newest[m.Subject] == sequence {
		delete(s.newest, m.Subject)
	}
	for _, d := range s.durables {
		d.dismiss(sequence)
	}
	if len(s.order) > 2*len(s.messages)+64 {
		s.order = slices.DeleteFunc(s.order, func(n uint64) bool { _, there := s.messages[n]; return !there })
	}
}

// expire removes messages older than the retention.
func (s *stream) expire(now time.Time) {
	if s.keeps.Age == 0 {
		return
	}
	for len(s.order) > 0 {
		m, there := s.messages[s.order[0]]
		if there && now.Sub(m.Time) < s.keeps.Age {
			return
		}
		s.remove(m.Sequence)
		s.order = s.order[1:]
	}
}

// size is the size of a message, as LogBytes counts it.
func size(m events.Message) int64 { return int64(len(m.Subject) + len(m.Data)) }

func (s *stream) truncate(last uint64) {
	for _, n := range slices.Clone(s.order) {
		if n > last {
			s.remove(n)
		}
	}
	s.order = slices.DeleteFunc(s.order, func(n uint64) bool { return n > last })
	s.last = min(s.last, last)
	for _, d := range s.durables {
		d.next = min(d.next, s.last+1)
	}
	// The newest message of a subject may have been removed.
	s.newest = map[string]uint64{}
	for _, n := range s.order {
		if m, there := s.messages[n]; there {
			s.newest[m.Subject] = n
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) end() {
	if s.ended {
		return
	}
	s.ended = true
	close(s.changed)
	for _, d := range s.durables {
		d.end()
	}
}

func (s *stream) first() uint64 {
	for _, n := range s.order {
		if _, there := s.messages[n]; there {
			return n
		}
	}
	return s.last + 1
}

// since is the first sequence that was stored at the given time or later.
func (s *stream) since(at time.Time) uint64 {
	for _, n := range s.order {
		if m, there := s.messages[n]; there && !m.Time.Before(at) {
			return n
		}
	}
	return s.last + 1
}

// from gives at most limit messages from a sequence on.
func (s *stream) from(sequence uint64, limit int) []events.Message {
	var batch []events.Message
	at, _ := slices.BinarySearch(s.order, sequence)
	for ; at < len(s.order) && len(batch) < limit; at++ {
		if m, there := s.messages[s.order[at]]; there {
			batch = append(batch, clone(m))
		}
	}
	return batch
}

// after finds the first message from a sequence on whose subject matches.
func (s *stream) after(sequence uint64, filter string) (events.Message, bool) {
	at, _ := slices.BinarySearch(s.order, sequence)
	for ; at < len(s.order); at++ {
		if m, there := s.messages[s.order[at]]; there && subject.Matches(filter, m.Subject) {
			return m, true
		}
	}
	return events.Message{}, false
}

// clone keeps reader, writer and store from changing each other's messages.
func clone(m events.Message) events.Message {
	m.Header = maps.Clone(m.Header)
	m.Data = bytes.Clone(m.Data)
	return m
}
