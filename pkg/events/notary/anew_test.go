package notary_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// disk is the notary's Memory.
type disk struct{ text []byte }

func (d *disk) Load() ([]byte, error) { return d.text, nil }

func (d *disk) Save(text []byte) error {
	d.text = text
	return nil
}

// replaceable is a bus whose owner removes and re-creates streams.
type replaceable struct{ bus.NotaryBus }

// forged is a bus on which a forged stream replaces the signed one, without any page.
func (w *world) forged() *memory.Bus {
	b := memory.New(memory.Options{})
	w.must(b.EnsureController(w.Context(), controller))
	_, err := b.Put(w.Context(), events.Message{Subject: subject.Turn(controller, events.LaneWrite, events.Key{Name: "web"}), Data: []byte("a lie")}, "lie")
	w.must(err)
	return b
}

// TestTheRecordIsNotBegunAnewInSilence: an attacker that removes the pages and the messages that
// they cover, and stores a forgery, gets no signature for it, not even from a restarted notary.
func TestTheRecordIsNotBegunAnewInSilence(t *testing.T) {
	live(t, 3, memory.Options{}, func(w *world) {
		own, at := &disk{}, &replaceable{w.bus}
		notaryOf := func(anew bool) *notary.Notary {
			return notary.New(at, notary.Options{Signer: w.signer, Known: w.known, Memory: own, BeginAnew: anew})
		}
		w.steps(30)
		running := notaryOf(false)
		w.must(running.Round(w.Context()))
		forged := w.forged()
		defer forged.Close()
		at.NotaryBus = forged
		verify := func() *notary.Report {
			r, err := notary.Verify(w.Context(), at, notary.Trust{Known: w.known})
			w.must(err)
			return r
		}
		for what, n := range map[string]*notary.Notary{"running": running, "started anew": notaryOf(false)} {
			if err := n.Round(w.Context()); !errors.Is(err, notary.ErrGone) {
				t.Errorf("the notary that is %s: %v", what, err)
			}
			if err := n.Healthy(); err == nil {
				t.Errorf("the notary that is %s is healthy", what)
			}
		}
		if r := verify(); len(r.Findings) == 0 {
			t.Error("verify finds nothing before the forged stream is signed")
		}
		// The owner re-creates the stream of the pages, too.
		w.must(forged.EnsureNotary(w.Context(), 0))
		if err := notaryOf(false).Round(w.Context()); !errors.Is(err, notary.ErrGone) {
			t.Errorf("a round on a recreated stream of pages: %v, want ErrGone", err)
		}
		if r := verify(); len(r.Findings) == 0 {
			t.Error("verify finds nothing with a recreated stream of pages")
		}
		// When told to begin anew, the notary continues, and says so.
		w.must(notaryOf(true).Round(w.Context()))
		r := verify()
		if len(r.Findings) == 0 || !strings.Contains(r.Findings[0].What, "nothing was vouched for before") {
			t.Errorf("the break is not on record: %v", r.Findings)
		}
		w.must(notaryOf(false).Round(w.Context()))
		// It does so only once.
		time.Sleep(time.Minute) // of virtual time
		again := w.forged()
		defer again.Close()
		told := notaryOf(true)
		at.NotaryBus = again
		w.must(told.Round(w.Context()))
		at.NotaryBus = forged
		if err := told.Round(w.Context()); !errors.Is(err, notary.ErrGone) {
			t.Errorf("a notary that was told once begins anew twice: %v", err)
		}
	})
}

// TestPagesOfOneStreamAreGone: the stream of the pages exists, but the pages about one stream do
// not.
func TestPagesOfOneStreamAreGone(t *testing.T) {
	live(t, 4, memory.Options{}, func(w *world) {
		w.steps(20)
		own := &disk{}
		n := notary.New(w.bus, notary.Options{Signer: w.signer, Known: w.known, Memory: own})
		w.must(n.Round(w.Context()))
		own.text = []byte(strings.ReplaceAll(string(own.text), "SHADOW_"+controller, "OUTCOME_other"))
		w.must(w.bus.EnsureController(w.Context(), "other"))
		_, err := w.bus.Put(w.Context(), events.Message{Subject: subject.Outcome("other", events.LaneWrite, events.Key{Name: "web"}), Data: []byte("a lie")}, "lie")
		w.must(err)
		n = notary.New(w.bus, notary.Options{Signer: w.signer, Known: w.known, Memory: own})
		if err := n.Round(w.Context()); !errors.Is(err, notary.ErrGone) || !strings.Contains(err.Error(), "OUTCOME_other") {
			t.Errorf("the round: %v", err)
		}
	})
}
