package roster

import (
	"fmt"
	"testing"
	"time"
)

// However many replicas are made up, what is kept of them is bounded.
func TestMadeUpReplicasAreBounded(t *testing.T) {
	b, now := newBook("self"), time.Unix(0, 0)
	for step := range 200 {
		now = now.Add(glance)
		b.hear(beat{ID: "self"}, now)
		for ghost := range 50 {
			b.hear(beat{ID: fmt.Sprint("ghost-", step, "-", ghost)}, now)
		}
		b.turn(now, true)
		if len(b.others) > most || len(b.silent) > most || len(b.seen) > most {
			t.Fatalf("after %v: %d others, %d silent, %d seen", now.Sub(time.Unix(0, 0)), len(b.others), len(b.silent), len(b.seen))
		}
	}
	for work := range 100 { // both say the same
		name := fmt.Sprint(work)
		if first := b.first(name); (first == "self") != (b.rank(name) == 0) {
			t.Errorf("%s falls to %s, and the own rank is %d", name, first, b.rank(name))
		}
	}
}

func FuzzBeat(f *testing.F) {
	for _, seed := range []string{`{"id":"a"}`, `{"id":"a","standing":2,"bye":true}`, `{"id":"a","standing":-1}`, `{"id":"a b"}`, `{"id":1}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, ok := decode(data)
		if !ok {
			return
		}
		if b.ID == "" || len(b.ID) > longestID || b.Standing < ready || b.Standing > fresh {
			t.Errorf("%q is taken for %+v", data, b)
		}
		k := newBook("self")
		k.hear(b, time.Unix(1, 0))
		k.turn(time.Unix(2, 0), true)
	})
}
