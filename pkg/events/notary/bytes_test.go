package notary

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// The smaller of two retentions counts, for age and bytes separately; 0 is no limit.
func TestTheLeastThatWasKept(t *testing.T) {
	of := func(age time.Duration, bytes int64) bus.Retention { return bus.Retention{Age: age, Bytes: bytes} }
	for _, c := range []struct{ a, b, want bus.Retention }{
		{of(0, 0), of(0, 0), of(0, 0)}, {of(5, 7), of(0, 0), of(5, 7)}, {of(0, 0), of(5, 7), of(5, 7)}, {of(5, 7), of(6, 6), of(5, 6)}, {of(6, 6), of(5, 7), of(5, 6)}, {of(5, 0), of(0, 7), of(5, 7)},
	} {
		if got := lesser(c.a, c.b); got != c.want {
			t.Errorf("the lesser of %+v and %+v is %+v, want %+v", c.a, c.b, got, c.want)
		}
	}
	for want, r := range map[string]bus.Retention{
		"all is kept": {}, "they are kept for 1h0m0s": of(time.Hour, 0), "2.5 MB are kept": of(0, 2_500_000), "they are kept for 1h0m0s, and 2.5 MB of them": of(time.Hour, 2_500_000),
	} {
		if got := kept(r); got != want {
			t.Errorf("%+v is told as %q, want %q", r, got, want)
		}
	}
}

// Space freed since a time, or up to a minute before it because of clock skew, limits what was
// kept.
func TestRoomThatWasMadeBoundsWhatWasKept(t *testing.T) {
	since := time.Unix(10_000, 0)
	state := func(at time.Time) bus.State {
		return bus.State{Keeps: bus.Retention{Age: time.Hour, Bytes: 9}, Bounded: bus.Bound{Bytes: 5, At: at}}
	}
	for at, want := range map[time.Time]int64{since: 5, since.Add(time.Hour): 5, since.Add(-time.Minute): 5, since.Add(-time.Minute - 1): 9, {}: 9} {
		if got := keepsSince(state(at), since); got.Bytes != want || got.Age != time.Hour {
			t.Errorf("with room made at %v it kept %+v, want %d bytes", at, got, want)
		}
	}
}

// The size of a message is its subject and body, a record of thirty bytes, and its headers in
// wire form.
func TestWhatAMessageTakesUp(t *testing.T) {
	for _, c := range []struct {
		header map[string][]string
		wire   string
	}{
		{nil, ""}, {map[string][]string{"A": {"b"}}, "NATS/1.0\r\nA: b\r\n\r\n"}, {map[string][]string{"A": {"b", "cd"}, "E": {""}}, "NATS/1.0\r\nA: b\r\nA: cd\r\nE: \r\n\r\n"},
	} {
		want := int64(30 + len("s.t") + len("body") + len(c.wire))
		if c.wire != "" {
			want += 4
		}
		if got := sizeOf(events.Message{Subject: "s.t", Data: []byte("body"), Header: c.header}); got != want {
			t.Errorf("with %v it takes up %d, want %d", c.header, got, want)
		}
	}
}

// An entry may be missing at the front by its age, or because of the limit in bytes. It is a cut
// if much less than the limit is left: less by more than a quarter of it, and by more than the
// largest message.
func TestWhatMayBeMissingAtTheFront(t *testing.T) {
	const now = 10_000
	of := func(age time.Duration, bytes int64) bus.Retention { return bus.Retention{Age: age, Bytes: bytes} }
	for name, c := range map[string]struct {
		time  int64
		keeps bus.Retention
		want  front
		may   bool
	}{
		"by its age":               {now - 60, of(time.Minute, 0), front{bound: 0}, true},
		"by its age, with a bound": {now - 60, of(time.Minute, 5), front{bound: 0}, true},
		"before its time":          {now - 59, of(time.Minute, 0), front{early: []int{7}, bound: 9}, false},
		"for the sake of room":     {now - 59, of(time.Minute, 5), front{pushed: 7, bound: 5}, true},
		"where all is kept":        {0, of(0, 0), front{early: []int{7}, bound: 9}, false},
	} {
		f := front{bound: 9}
		may := f.missing(7, Entry{Time: c.time}, c.keeps, now)
		if may != c.may || len(f.early) != len(c.want.early) || len(f.early) > 0 && f.early[0] != 7 || f.pushed != c.want.pushed || f.bound != c.want.bound {
			t.Errorf("%s: the message may be missing: %t, want %t; the front is %+v", name, may, c.may, f)
		}
	}
	const mib = 1 << 20
	for _, c := range []struct {
		bound, bytes, within int64
		short                bool
	}{
		{0, 0, 0, false}, {32 * mib, 24 * mib, 0, false}, {32 * mib, 24*mib - 1, 0, true}, {32 * mib, 20 * mib, 4 * mib, false}, {100 * mib, 75 * mib, 0, false}, {100 * mib, 75*mib - 1, 0, true},
		{8 * mib, 0, 0, false}, {8*mib + 1, 0, 0, true},
	} {
		if got := (&front{within: c.within}).short(c.bound, c.bytes); got != c.short {
			t.Errorf("of a bound of %d bytes %d are there, and %d expired within: too few is %t, want %t", c.bound, c.bytes, c.within, got, c.short)
		}
	}
	f := front{largest: 5000}
	for life, want := range map[int64]int64{3600: 2048, 3601: 5000} {
		before := f.within
		if f.expired(Entry{Time: 100, Expires: 100 + life}); f.within-before != want {
			t.Errorf("messages kept for %d s may have taken up %d, want %d", life, f.within-before, want)
		}
	}
	small := front{largest: 10}
	if small.expired(Entry{Expires: 1 << 20}); small.within != 2048 {
		t.Errorf("where all are small it may have taken up %d", small.within)
	}
}

// Entries in a row with the same problem are one finding, and separate entries are several.
func TestWhatLiesTogetherIsFoundOnce(t *testing.T) {
	s := &scan{Standing: Standing{Stream: "S"}, entries: []Entry{{Sequence: 3}, {Sequence: 5}, {Sequence: 6}, {Sequence: 9}, {Sequence: 11}}}
	for _, at := range []int{0, 1, 3, 4} {
		s.extend(at, "gone")
	}
	s.extend(4, "other")
	want := []Finding{{"S", 3, 5, "gone"}, {"S", 9, 11, "gone"}, {"S", 11, 0, "other"}}
	if len(s.findings) != len(want) {
		t.Fatalf("found is %v", s.findings)
	}
	for i, f := range s.findings {
		if f != want[i] {
			t.Errorf("finding %d is %+v, want %+v", i, f, want[i])
		}
	}
}

// A list follows another one by its number and by the other's sum.
func TestWhichListFollows(t *testing.T) {
	one := &List{Number: 1, Time: time.Unix(1, 0)}
	two := &List{Number: 2, Before: one.Sum(), Time: time.Unix(2, 0)}
	for name, c := range map[string]struct {
		next    List
		follows bool
	}{
		"the next one":   {List{Number: 3, Before: two.Sum()}, true},
		"one further":    {List{Number: 4, Before: two.Sum()}, false},
		"of another":     {List{Number: 3, Before: one.Sum()}, false},
		"the same again": {*two, false},
	} {
		if got := c.next.follows(two); got != c.follows {
			t.Errorf("%s follows: %t", name, got)
		}
	}
	if (&listing{}).number() != 0 || (&listing{last: two}).number() != 2 {
		t.Error("the number of the last list is wrong")
	}
	if head := two.head(); head.Stream != "NOTARY" || head.Number != 2 || head.Root != two.Sum() || !head.Time.Equal(two.Time) {
		t.Errorf("the head for a witness is %+v", head)
	}
}
