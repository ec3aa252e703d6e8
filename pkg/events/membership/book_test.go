package membership

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

var begin = time.Unix(1000, 0)

// works are enough pieces of work to measure shares.
func works() (all []string) {
	for i := range 600 {
		all = append(all, fmt.Sprint("work-", i))
	}
	return all
}

// among is the book of a replica that has listened long enough, among ready others.
func among(id string, others ...string) *book {
	b := newBook(id)
	for at := time.Duration(0); at <= 2*silence; at += heartbeat {
		for _, name := range append(others, id) {
			b.hear(announcement{ID: name}, begin.Add(at))
		}
		b.turn(begin.Add(at), true)
	}
	return b
}

func owners(all ...*book) map[string]string {
	owner := map[string]string{}
	for _, w := range works() {
		for _, b := range all {
			if b.rank(w) == 0 {
				owner[w] += b.id
			}
		}
	}
	return owner
}

func TestWorkIsSharedOutAndOnlyWhatMustMovesMoves(t *testing.T) {
	three := owners(among("a", "b", "c"), among("b", "a", "c"), among("c", "a", "b"))
	share := map[string]int{}
	for _, who := range three {
		share[who]++
	}
	for _, who := range []string{"a", "b", "c"} {
		if n := share[who]; n < 150 || n > 250 {
			t.Errorf("%s has %d of 600 pieces of work", who, n)
		}
	}
	two := owners(among("a", "b"), among("b", "a"))
	for w, who := range two {
		if who != three[w] && three[w] != "c" {
			t.Errorf("%s moved from %s to %s when c left", w, three[w], who)
		}
	}
}

func TestWhoIsFreshComesLastAndWhoIsUnfitBeforeIt(t *testing.T) {
	b := among("a", "b")
	for standing, want := range map[standing]int{fresh: 600, unfit: 600} {
		b.hear(announcement{ID: "b", Standing: standing}, begin.Add(2*silence))
		if got := countFirst(b); got != want {
			t.Errorf("beside one of standing %d it is first for %d, want %d", standing, got, want)
		}
	}
	// Beside another unfit replica, the hash decides.
	b.turn(begin.Add(2*silence), false)
	b.hear(announcement{ID: "b", Standing: unfit}, begin.Add(2*silence))
	if got := countFirst(b); got < 200 || got > 400 {
		t.Errorf("of two unfit replicas one is first for %d of 600, want about half", got)
	}
	if young := newBook("c"); young.level("work") != bus.LastRank {
		t.Errorf("a replica that has just come asks with rank %d, want the last", young.level("work"))
	}
}

func countFirst(b *book) (n int) {
	for _, w := range works() {
		if b.rank(w) == 0 {
			n++
		}
	}
	return n
}

// TestRequestsOfTheSilentAreOutranked: whatever rank the silent replica had, the first of the
// others has a better one; once its requests have expired, the ranks are as before.
func TestRequestsOfTheSilentAreOutranked(t *testing.T) {
	b := among("a", "b", "c")
	before := map[string]int{}
	for _, w := range works() {
		before[w] = b.level(w)
	}
	at := begin.Add(2 * silence)
	tick := func(until time.Time, heard ...string) {
		for ; at.Before(until); at = at.Add(heartbeat) {
			for _, id := range append(heard, "a") {
				b.hear(announcement{ID: id}, at)
			}
			b.turn(at, true)
		}
	}
	tick(at.Add(2*silence), "c") // b is silent
	for _, w := range works() {
		if b.rank(w) == 0 && b.level(w) >= best {
			t.Fatalf("the first asks in rank %d while b, silent, may have had %d", b.level(w), best)
		}
	}
	tick(at.Add(2 * silence)) // and now c
	if got := b.level("work"); got != best-2 {
		t.Errorf("after two fell silent the last asks in rank %d, want %d", got, best-2)
	}
	tick(at.Add(bus.Lingering))
	if got := b.level("work"); got != best {
		t.Errorf("when their requests have expired it asks in rank %d, want %d", got, best)
	}
}

// TestLevelsStayApartWhenManyFellSilent: no two live replicas request with the same rank.
func TestLevelsStayApartWhenManyFellSilent(t *testing.T) {
	a, b := among("a", "b"), among("b", "a")
	for _, x := range []*book{a, b} {
		for i := range 8 {
			x.silent[fmt.Sprint(i)] = begin.Add(2 * silence)
		}
		x.turn(begin.Add(2*silence), true)
	}
	for _, w := range works() {
		if a.level(w) == b.level(w) {
			t.Fatalf("both ask in rank %d", a.level(w))
		}
	}
}

// TestWhoComesBackIsSilentNoMore: the others request with their earlier ranks.
func TestWhoComesBackIsSilentNoMore(t *testing.T) {
	b := among("a", "b")
	before, at := b.level("work"), begin.Add(2*silence)
	for end := at.Add(2 * silence); at.Before(end); at = at.Add(heartbeat) {
		b.hear(announcement{ID: "a"}, at)
		b.turn(at, true)
	}
	if len(b.silent) != 1 || b.level("work") == before {
		t.Fatalf("b is silent, and a asks in rank %d as before", before)
	}
	b.hear(announcement{ID: "b"}, at)
	if got := b.level("work"); len(b.silent) != 0 || got != before {
		t.Errorf("b is heard again, %d are silent, and a asks in rank %d, want %d", len(b.silent), got, before)
	}
}

// TestWhoIsSureOfAnswers: only another replica that is ready and gets its answers, and only
// while this one hears the others.
func TestWhoIsSureOfAnswers(t *testing.T) {
	at := begin.Add(2 * silence)
	for name, c := range map[string]struct {
		others []announcement
		at     time.Time
		want   bool
	}{
		"alone":                        {nil, at, false},
		"beside one that is ready":     {[]announcement{{ID: "b"}}, at, true},
		"beside one in doubt":          {[]announcement{{ID: "b", Doubtful: true}}, at, false},
		"beside one that is unfit":     {[]announcement{{ID: "b", Standing: unfit}}, at, false},
		"beside one of each":           {[]announcement{{ID: "b", Doubtful: true}, {ID: "c", Standing: unfit}, {ID: "d"}}, at, true},
		"when it has not heard itself": {[]announcement{{ID: "b"}}, at.Add(time.Hour), false},
	} {
		b := among("a")
		for _, other := range c.others {
			b.hear(other, at)
		}
		if got := b.sureOthers(c.at); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestAReplicaIsSilentAfterItsTime: after 480 ms without a heartbeat, not before.
func TestAReplicaIsSilentAfterItsTime(t *testing.T) {
	b, last := among("a", "b"), begin.Add(2*silence)
	for _, after := range []time.Duration{heartbeat, 2 * heartbeat, 3 * heartbeat} {
		b.hear(announcement{ID: "a"}, last.Add(after))
	}
	if b.turn(last.Add(silence-1), true); len(b.others) != 1 {
		t.Error("a silent replica is left out before its time")
	}
	if b.turn(last.Add(silence), true); len(b.others) != 0 || len(b.silent) != 1 {
		t.Errorf("after their time the others are %v, want none, and one silent", b.others)
	}
}

// TestAGoodbyeOfOneThatIsSilent ends the wait for its requests. A goodbye of a replica for which
// there was no room changes nothing.
func TestAGoodbyeOfOneThatIsSilent(t *testing.T) {
	b, at := among("a"), begin.Add(2*silence)
	b.silent["b"] = at
	if b.turn(at, true); b.shadows != 1 {
		t.Fatalf("%d replicas are silent, want 1", b.shadows)
	}
	if changed := b.hear(announcement{ID: "b", Bye: true}, at); !changed || len(b.silent) != 0 || b.shadows != 0 {
		t.Errorf("after its goodbye %d replicas are silent (changed: %t), want none", b.shadows, changed)
	}
	for n := range most {
		b.hear(announcement{ID: fmt.Sprint("other-", n)}, at)
	}
	if changed := b.hear(announcement{ID: "one more"}, at); changed || len(b.others) != most {
		t.Errorf("one more is heard, and %d others are there; anything has changed: %t", len(b.others), changed)
	}
}
