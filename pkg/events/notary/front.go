package notary

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// Messages may be missing at the front of a stream because the bus expired them, or because an
// attacker cut them off. Every page has the stream's retention, so age is easy to check. In a
// stream with a limit in bytes, the bus drops the oldest messages one by one until the rest
// fits. So the rest is smaller than the limit by less than one message, plus what has expired
// within it since. If much less is left, the front was cut off.

const (
	// largest is the largest message that the bus accepts, in bytes.
	largest = 8 << 20
	// markSize is an upper bound of a mark's size, in bytes, and markLife of its life. A message
	// that expires by itself after a longer time has the body of an object.
	markSize, markLife = 2 << 10, time.Hour
	// clocks is the tolerance between the clocks that date when space was freed.
	clocks = time.Minute
)

// lesser is the smaller of two retentions, in each field.
func lesser(a, b bus.Retention) bus.Retention {
	out := a
	if b.Age > 0 && (out.Age == 0 || b.Age < out.Age) {
		out.Age = b.Age
	}
	if b.Bytes > 0 && (out.Bytes == 0 || b.Bytes < out.Bytes) {
		out.Bytes = b.Bytes
	}
	return out
}

// keepsSince is the smallest retention of a stream since a time.
func keepsSince(s bus.State, since time.Time) bus.Retention {
	if s.Bounded.At.IsZero() || s.Bounded.At.Add(clocks).Before(since) {
		return s.Keeps
	}
	return lesser(s.Keeps, bus.Retention{Bytes: s.Bounded.Bytes})
}

// sizeOf is the size of a message in the bus's store, in bytes.
func sizeOf(m events.Message) int64 {
	const record, header, line = 30, 4 + len("NATS/1.0\r\n\r\n"), len(": \r\n")
	size := record + len(m.Subject) + len(m.Data)
	if len(m.Header) > 0 {
		size += header
	}
	for key, values := range m.Header {
		for _, value := range values {
			size += len(key) + len(value) + line
		}
	}
	return int64(size)
}

// front is what is known about messages missing at the front of a stream.
type front struct {
	// early are entries that had not expired by the signed retention.
	early []int
	// pushed is the last entry that the limit in bytes may have removed, and bound that limit.
	pushed int
	bound  int64
	// bytes is the size of the existing messages, largest that of the largest one, and within an
	// estimate of those that expired among them.
	bytes, largest, within int64
}

// missing judges an entry at the front, and reports whether its message may be missing.
func (f *front) missing(at int, e Entry, keeps bus.Retention, now int64) bool {
	switch {
	case keeps.Age > 0 && e.Time+int64(keeps.Age/time.Second) <= now:
		f.bound = 0
		return true
	case keeps.Bytes > 0:
		f.pushed, f.bound = at, keeps.Bytes
		return true
	}
	f.early = append(f.early, at)
	return false
}

// expired counts a message that has expired among the existing ones.
func (f *front) expired(e Entry) {
	if time.Duration(e.Expires-e.Time)*time.Second <= markLife {
		f.within += markSize
	} else {
		f.within += max(f.largest, markSize)
	}
}

// short reports whether much less exists than a limit in bytes would have left.
func (f *front) short(bound, bytes int64) bool {
	return bound > 0 && bytes+f.within < bound-max(bound/4, largest)
}

// concludeFront reports messages missing at the front. Messages stored since the last page, and a retention
// that changed less than ten seconds ago, are in no page yet, but in the stream's present state.
func (s *scan) concludeFront(state bus.State) {
	bytes := s.front.bytes
	if !s.File && state.Last > s.Last {
		bytes = max(bytes, int64(state.Bytes))
	}
	if s.front.short(s.front.bound, bytes) {
		e := s.entries[s.front.pushed]
		s.find(e.Sequence, "messages at the front up to this one are gone before their time, and not for the sake of room: what is left takes up %.1f MB, and a bound of %.1f MB was signed",
			float64(bytes)/1e6, float64(s.front.bound)/1e6)
	}
	s.early(state, bytes)
}

// early reports entries that are gone although the signed retention keeps them. On a bus, the
// retention may have been shortened since the last page.
func (s *scan) early(state bus.State, bytes int64) {
	if len(s.front.early) == 0 {
		return
	}
	keeps, now := keepsSince(state, s.Until), s.now.Add(slack).Unix()
	unsigned := s.front
	unsigned.early, unsigned.bound = nil, 0
	for _, at := range s.front.early {
		e := s.entries[at]
		if s.File || !unsigned.missing(at, e, lesser(s.keeps[at], keeps), now) {
			s.extend(at, "messages at the front are gone before their time: "+kept(s.keeps[at]))
		}
	}
	switch last := s.front.early[len(s.front.early)-1]; {
	case s.File || len(unsigned.early) > 0:
	case unsigned.short(unsigned.bound, bytes):
		s.find(s.entries[unsigned.pushed].Sequence, "messages at the front up to this one are gone before their time: %s, and what is left takes up %.1f MB", kept(keeps), float64(bytes)/1e6)
	default:
		s.remarks = append(s.remarks, Finding{Stream: s.Stream, Sequence: s.entries[s.front.early[0]].Sequence, To: s.entries[last].Sequence, What: fmt.Sprintf(
			"messages at the front are gone, since less is kept than when they were signed: %s; that is not signed yet", kept(keeps))})
	}
	s.Expired += len(s.front.early) - len(unsigned.early)
}

// extend reports an entry, in one finding with those directly before it if they have the same
// problem.
func (s *scan) extend(at int, what string) {
	e := s.entries[at]
	if n := len(s.findings); n > 0 {
		if f := &s.findings[n-1]; f.What == what && at > 0 && max(f.Sequence, f.To) == s.entries[at-1].Sequence {
			f.To = e.Sequence
			return
		}
	}
	s.find(e.Sequence, "%s", what)
}

func kept(r bus.Retention) string {
	switch {
	case r == bus.Retention{}:
		return "all is kept"
	case r.Bytes == 0:
		return fmt.Sprintf("they are kept for %v", r.Age)
	case r.Age == 0:
		return fmt.Sprintf("%.1f MB are kept", float64(r.Bytes)/1e6)
	}
	return fmt.Sprintf("they are kept for %v, and %.1f MB of them", r.Age, float64(r.Bytes)/1e6)
}
