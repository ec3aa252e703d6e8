package notary_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestPagesThatDoNotFollow: even a page with the notary's signature is reported if it does not
// continue the page before it, in any respect.
func TestPagesThatDoNotFollow(t *testing.T) {
	live(t, 41, memory.Options{}, func(w *world) {
		for range 3 {
			time.Sleep(time.Second) // of virtual time
			w.turn()
			w.sign()
		}
		was := w.export(archive.Selection{})
		whole(t, was.verify(t, w.known), true)
		for what, change := range map[string]func(p *notary.Page){
			"another number":          func(p *notary.Page) { p.Number++ },
			"another stream's time":   func(p *notary.Page) { p.Created = p.Created.Add(1) },
			"from another message on": func(p *notary.Page) { p.First-- },
			"another tree": func(p *notary.Page) {
				p.Edge[0][0]++
				completed(t, p)
			},
			"from the begin again": func(p *notary.Page) {
				p.Before, p.Edge = 0, nil
				completed(t, p)
			},
		} {
			f := was.copy()
			at := f.second(subject.Notary(turns))
			p, err := notary.Open(f.pages()[at].Data, w.known)
			w.must(err)
			change(p)
			m := f.pages()[at]
			m.Data, err = p.Sign(w.signer)
			w.must(err)
			f.pages()[at] = sealedAnew(m)
			found := f.verify(t, w.known).Findings
			if !slices.ContainsFunc(found, func(f notary.Finding) bool {
				return f.Stream == subject.NotaryStream && f.Sequence == m.Sequence && strings.Contains(f.What, "the page about "+turns+" does not follow the one before it, which ends with message 1")
			}) {
				t.Errorf("with %s verify finds %v, want that the page does not follow the one before it", what, found)
			}
		}
	})
}

// second is the position of the second page about a stream.
func (f *file) second(on string) int {
	first := slices.IndexFunc(f.pages(), func(m events.Message) bool { return m.Subject == on })
	return first + 1 + slices.IndexFunc(f.pages()[first+1:], func(m events.Message) bool { return m.Subject == on })
}

// TestARecordThatWasBroken: a page that begins a new tree says why, and the messages before it
// are no longer proven.
func TestARecordThatWasBroken(t *testing.T) {
	live(t, 42, memory.Options{}, func(w *world) {
		for range 2 {
			time.Sleep(time.Second) // of virtual time
			w.turn()
			w.sign()
		}
		w.must(w.bus.Truncate(turns, 1))
		w.sign()
		found := w.findings(w.bus, notary.Trust{})
		broken := slices.DeleteFunc(slices.Clone(found), func(f notary.Finding) bool { return !strings.Contains(f.What, "the record was broken") })
		if len(broken) != 1 || broken[0].Stream != turns || !strings.Contains(broken[0].What, "the stream ends with message 1, where it had 2") {
			t.Errorf("found is %v", found)
		}
		// From then on the record is valid again.
		time.Sleep(time.Second)
		w.turn()
		w.sign()
		r, err := notary.Verify(w.Context(), w.bus, notary.Trust{Known: w.known})
		w.must(err)
		at := slices.IndexFunc(r.Streams, func(s notary.Standing) bool { return s.Stream == turns })
		if s := r.Streams[at]; s.Proven != 2 || s.Unproven != 0 || s.Pages != 4 || s.Head.Number != 2 || !s.Since.Before(s.Until) {
			t.Errorf("the stream stands at %+v, want 2 messages proven by 4 pages", s)
		}
	})
}

// TestWhatIsRemarked about a record that began before it was signed: the time in between.
func TestWhatIsRemarked(t *testing.T) {
	for waited, remarked := range map[time.Duration]bool{5 * time.Minute: false, 5*time.Minute + time.Second: true} {
		live(t, 43, memory.Options{}, func(w *world) {
			w.turn()
			began := time.Now()
			time.Sleep(waited) // of virtual time
			w.sign()
			r, err := notary.Verify(w.Context(), w.bus, notary.Trust{Known: w.known})
			w.must(err)
			whole(t, r, true)
			at := slices.IndexFunc(r.Remarks, func(f notary.Finding) bool { return f.Stream == turns })
			if (at >= 0) != remarked || remarked && !strings.Contains(r.Remarks[at].What, "and written before, from "+began.UTC().Format(time.RFC3339)+" on") {
				t.Errorf("signed after %v it is remarked: %v", waited, r.Remarks)
			}
		})
	}
}

// TestAStreamThatWasMadeAnew is another stream for the notary that signed the old one.
func TestAStreamThatWasMadeAnew(t *testing.T) {
	live(t, 44, memory.Options{}, func(w *world) {
		w.happens()
		w.sign()
		w.must(w.bus.DeleteKind(w.Context(), "pods"))
		time.Sleep(time.Minute) // of virtual time
		w.must(w.bus.EnsureKind(w.Context(), w.logs["pods"].kind))
		*w.logs["pods"] = log{kind: w.logs["pods"].kind, uids: w.logs["pods"].uids}
		w.say(w.logs["pods"], events.Mark, events.Ref{})
		made := time.Now().UTC().Format(time.RFC3339)
		about := func() string {
			var all []string
			for _, f := range w.findings(w.bus, notary.Trust{}) {
				all = append(all, f.String())
			}
			return strings.Join(all, "\n")
		}
		if found := about(); !strings.Contains(found, "EV_pods: the stream was made anew on "+made+", and no page tells why") {
			t.Errorf("before it is signed verify finds %s, want that the stream was made anew", found)
		}
		w.sign()
		if found := about(); !strings.Contains(found, "the record was broken by "+made+": the stream was made anew on "+made) || strings.Contains(found, "no page tells why") {
			t.Errorf("once it is signed is found: %s", found)
		}
	})
}
