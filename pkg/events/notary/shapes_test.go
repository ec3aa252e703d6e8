package notary_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// shapes are possible histories of a record, all of them valid.
var shapes = map[string]struct {
	options memory.Options
	live    func(w *world)
	cut     func(w *world) archive.Selection
}{
	"a busy hour": {live: func(w *world) { w.steps(150) }},
	"the front has expired": {options: memory.Options{LogAge: 2 * time.Minute}, live: func(w *world) {
		w.steps(150)
	}},
	"everything has expired": {options: memory.Options{LogAge: time.Minute}, live: func(w *world) {
		w.steps(60)
		time.Sleep(time.Hour)
		w.sign()
		w.steps(20)
	}},
	"marks have expired within": {live: func(w *world) {
		w.steps(60)
		time.Sleep(2 * time.Hour)
		w.steps(60)
	}},
	"gaps": {live: func(w *world) {
		for range 5 {
			w.steps(25)
			w.say(w.logs[kinds.Pods.Name], events.Gap, events.Ref{})
		}
		w.sign()
	}},
	"two notaries": {live: func(w *world) {
		w.notary()
		w.steps(150)
	}},
	"notaries come and go": {live: func(w *world) {
		for range 6 {
			w.steps(25)
			w.notaries = nil
			w.notary()
		}
		w.sign()
	}},
	"the notary was away": {options: memory.Options{LogAge: 3 * time.Minute}, live: func(w *world) {
		w.steps(30)
		w.notaries = nil
		for range 100 {
			w.say(w.logs[kinds.Pods.Name], events.Mark, events.Ref{})
			time.Sleep(10 * time.Second)
		}
		w.notary()
		w.steps(40)
	}},
	"the notary came late": {live: func(w *world) {
		w.notaries = nil
		for range 10 {
			w.turn()
			w.say(w.logs[kinds.Pods.Name], events.Mark, events.Ref{})
		}
		w.notary()
		w.steps(50)
	}},
	"a quiet week": {live: func(w *world) {
		w.steps(40)
		for range 7 * 24 {
			time.Sleep(time.Hour)
			w.sign()
		}
		w.steps(20)
	}},
	"pages of their own have expired": {options: memory.Options{LogAge: time.Minute}, live: func(w *world) {
		for range 30 {
			w.steps(10)
			time.Sleep(time.Hour)
		}
		w.sign()
	}},
	"nothing has happened yet": {live: func(w *world) { w.sign() }},
	"a stretch from the middle": {live: func(w *world) { w.steps(150) }, cut: func(*world) archive.Selection {
		return archive.Selection{Since: time.Now().Add(-2 * time.Minute)}
	}},
	"a stretch that ended": {live: func(w *world) { w.steps(150) }, cut: func(*world) archive.Selection {
		return archive.Selection{Since: time.Now().Add(-4 * time.Minute), Until: time.Now().Add(-time.Minute)}
	}},
	"one kind alone": {live: func(w *world) { w.steps(100) }, cut: func(*world) archive.Selection {
		return archive.Selection{Kinds: []kinds.Name{"pods"}, Controllers: []string{}}
	}},
}

func (w *world) steps(n int) {
	w.Helper()
	for range n {
		w.step()
	}
	if len(w.notaries) > 0 {
		w.sign()
	}
}

// TestWhatIsWholeIsCalledWhole: Verify finds nothing in a valid record, on the bus or in a file,
// with the key or without; and all of it is proven up to the last page.
func TestWhatIsWholeIsCalledWhole(t *testing.T) {
	for name, shape := range shapes {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(name, "/", seed), func(t *testing.T) {
				live(t, seed, shape.options, func(w *world) {
					shape.live(w)
					cut := archive.Selection{}
					if shape.cut != nil {
						cut = shape.cut(w)
					}
					f := w.export(cut)
					whole(t, f.verify(t, w.known), cut.Since.IsZero())
					whole(t, f.verify(t, nil), false)
					r, err := notary.Verify(t.Context(), w.bus, notary.Trust{Known: w.known})
					w.must(err)
					whole(t, r, true)
				})
			})
		}
	}
}

func whole(t *testing.T, r *notary.Report, proven bool) {
	t.Helper()
	for _, f := range r.Findings {
		t.Errorf("found: %v", f)
	}
	for _, s := range r.Streams {
		if proven && (s.Unproven > 0 || s.Proven != s.Messages || s.Pages == 0 && s.Last > 0) {
			t.Errorf("not everything is proven: %+v", s)
		}
	}
}

// TestAWitnessRemembers: a record that was truncated together with its pages is valid, but
// older; a reader that has seen the newer one notices.
func TestAWitnessRemembers(t *testing.T) {
	live(t, 7, memory.Options{}, func(w *world) {
		w.steps(60)
		older := w.export(archive.Selection{})
		w.steps(60)
		newer := w.export(archive.Selection{})
		seen := newer.verify(t, w.known).Heads()
		held := func(f *file) []notary.Finding {
			opened := f.open(t)
			defer opened.Close()
			r, err := notary.Verify(t.Context(), opened, notary.Trust{Known: w.known, Now: f.about.Exported, Witness: seen})
			w.must(err)
			return r.Findings
		}
		if found := held(newer); len(found) > 0 {
			t.Errorf("the record that was seen: %v", found)
		}
		back := map[string]bool{}
		for _, f := range held(older) {
			if !strings.Contains(f.What, "the record went back") {
				t.Errorf("an older record: %v", f)
			}
			back[f.Stream] = true
		}
		for _, stream := range []string{"EV_pods", "TURN_" + controller, "SHADOW_" + controller} {
			if !back[stream] {
				t.Errorf("%s went back, and no witness noticed", stream)
			}
		}
		w.steps(60)
		whole(t, newer.verify(t, w.known), true)
		if found := held(w.export(archive.Selection{})); len(found) > 0 {
			t.Errorf("a record that went on: %v", found)
		}
		for name, c := range seen { // as from another record of the same length
			c.Root[0]++
			seen[name] = c
		}
		if found := held(newer); len(found) != len(seen) {
			t.Errorf("of another record %d streams are noticed, want %d: %v", len(found), len(seen), found)
		}
	})
}
