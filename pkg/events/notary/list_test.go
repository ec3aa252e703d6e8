package notary_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// FuzzList: only bytes that the notary signed are accepted as a list, and it can read every list
// that it signs.
func FuzzList(f *testing.F) {
	signer, verifier := key(f, 1)
	known := note.VerifierList(verifier)
	list := notary.List{Number: 3, Before: [32]byte{1}, Time: time.Unix(7, 0), Break: "because", Streams: []notary.Listed{
		{Stream: "EV_pods", Created: time.Unix(0, 5), Page: 2, Last: 9}, {Stream: "TURN_c", Created: time.Unix(0, 6), Page: 1, Last: 1, Gone: time.Unix(6, 0)},
	}}
	honest, err := list.Sign(signer)
	if err != nil {
		f.Fatal(err)
	}
	if l, err := notary.OpenList(honest, known); err != nil || l.Sum() != list.Sum() || !slices.Equal(l.Streams, list.Streams) {
		f.Fatalf("read %+v (%v)", l, err)
	}
	f.Add(honest)
	f.Add([]byte("millrace streams\nnumber 1 before " + strings.Repeat("A", 43) + "=\ntime 1970-01-01T00:00:07Z\nstream b 0 0 0\nstream a 0 0 0\n"))
	f.Add(bytes.Replace(honest, []byte("gone"), []byte("Gone"), 1))
	f.Fuzz(func(t *testing.T, stored []byte) {
		if l, err := notary.OpenList(stored, known); err == nil && !bytes.Equal(stored, honest) {
			t.Errorf("%q is taken for %+v", stored, l)
		}
		// Content behind a valid signature, as from a compromised notary.
		signed, err := note.Sign(&note.Note{Text: strings.TrimRight(string(stored), "\n") + "\n"}, signer)
		if err != nil {
			return
		}
		l, err := notary.OpenList(signed, known)
		if err != nil {
			return
		}
		again, err := l.Sign(signer)
		if err != nil || !bytes.Equal(again, signed) {
			t.Errorf("%q is read as %+v, which is written %q (%v)", signed, l, again, err)
		}
	})
}

// lists are the lists stored on a bus.
func (w *world) lists(b bus.Archive) (all []*notary.List) {
	w.Helper()
	w.must(b.Read(w.Context(), bus.Passage{Stream: subject.NotaryStream, Subject: listSubject}, func(batch []events.Message) error {
		for _, m := range batch {
			l, err := notary.OpenList(m.Data, w.known)
			w.must(err)
			all = append(all, l)
		}
		return nil
	}))
	return all
}

// TestTheStreamsAreListed at each change and every ten minutes, and no more often.
func TestTheStreamsAreListed(t *testing.T) {
	live(t, 5, memory.Options{}, func(w *world) {
		w.turn()
		w.sign()
		w.turn()
		w.sign()
		if all := w.lists(w.bus); len(all) != 1 || len(all[0].Streams) != 3 {
			t.Fatalf("at first: %+v", all)
		}
		w.say(w.logs[kinds.Pods.Name], events.Mark, events.Ref{})
		w.sign()
		if all := w.lists(w.bus); len(all) != 2 || len(all[1].Streams) != 4 || all[1].Streams[0].Stream != "EV_pods" {
			t.Fatalf("with another stream the lists are %+v, want 2, the second of 4 streams", all)
		}
		w.notary() // another notary writes no list of its own
		for range 65 {
			time.Sleep(10 * time.Second) // of virtual time
			w.sign()
		}
		all := w.lists(w.bus)
		if len(all) != 3 || all[2].Time.Sub(all[1].Time) < 10*time.Minute || all[2].Before != all[1].Sum() || all[2].Number != 3 {
			t.Fatalf("after ten minutes the lists are %+v, want a third that follows the second", all)
		}
	})
}

// TestAStreamThatIsRemovedIsOnRecord: Verify detects an attacker that removes a stream together
// with its pages while the notary is running, even after the older lists have expired.
func TestAStreamThatIsRemovedIsOnRecord(t *testing.T) {
	live(t, 6, memory.Options{}, func(w *world) {
		w.steps(40)
		w.must(w.bus.DeleteKind(w.Context(), kinds.Pods.Name))
		w.sign()
		f := w.export(archive.Selection{})
		lists := 0
		f.messages[subject.NotaryStream] = slices.DeleteFunc(f.pages(), func(m events.Message) bool {
			if m.Subject == listSubject {
				lists++
			}
			return m.Subject == subject.Notary("EV_pods") || m.Subject == listSubject && lists < 2
		})
		r := f.verify(t, w.known)
		if len(r.Findings) != 1 || r.Findings[0].Stream != "EV_pods" || !strings.Contains(r.Findings[0].What, "missing since") {
			t.Errorf("found: %v", r.Findings)
		}
		// The stream exists again, as another one, and its pages say so.
		w.must(w.bus.EnsureKind(w.Context(), kinds.Pods.Kind))
		*w.logs[kinds.Pods.Name] = log{kind: kinds.Pods.Kind, uids: w.logs[kinds.Pods.Name].uids}
		w.say(w.logs[kinds.Pods.Name], events.Mark, events.Ref{})
		w.sign()
		r = w.export(archive.Selection{}).verify(t, w.known)
		if len(r.Findings) != 1 || r.Findings[0].Stream != "EV_pods" || !strings.Contains(r.Findings[0].What, "made anew") {
			t.Errorf("found when it was made anew: %v", r.Findings)
		}
	})
}

// TestAListOfBeforeIsNotBelieved: if the newest lists were removed, the next one says so, and
// its number continues after the last one that the notary knows.
func TestAListOfBeforeIsNotBelieved(t *testing.T) {
	live(t, 6, memory.Options{}, func(w *world) {
		own := &disk{}
		earlier := &earlier{NotaryBus: w.bus}
		sign := func() {
			w.turn()
			w.must(notary.New(earlier, notary.Options{Signer: w.signer, Known: w.known, Memory: own}).Round(w.Context()))
		}
		sign()
		m, ok, err := w.bus.Last(w.Context(), subject.NotaryStream, listSubject)
		if w.must(err); !ok {
			t.Fatal("there is no list")
		}
		time.Sleep(time.Hour) // of virtual time
		sign()
		time.Sleep(time.Hour)
		earlier.list = &m
		sign()
		if all := w.lists(w.bus); len(all) != 3 || all[2].Number != 3 || !strings.Contains(all[2].Break, "the last one was number 2") || all[1].Break != "" {
			for _, l := range all {
				t.Errorf("there is list %d, with the break %q", l.Number, l.Break)
			}
		}
	})
}

// earlier is a bus on which an older list is the last one.
type earlier struct {
	bus.NotaryBus
	list *events.Message
}

func (b *earlier) Last(ctx context.Context, stream, of string) (events.Message, bool, error) {
	m, ok, err := b.NotaryBus.Last(ctx, stream, of)
	if of == listSubject && b.list != nil {
		m.Data, m.Header = b.list.Data, b.list.Header
	}
	return m, ok, err
}

func (f *file) pages() []events.Message { return f.messages[subject.NotaryStream] }

// TestWhatExpiredIsListedNoMore: a deleted kind is dropped from the lists when all of its
// messages would have expired.
func TestWhatExpiredIsListedNoMore(t *testing.T) {
	live(t, 6, memory.Options{LogAge: time.Hour}, func(w *world) {
		w.steps(40)
		w.must(w.bus.DeleteKind(w.Context(), kinds.Pods.Name))
		for range 27 {
			time.Sleep(time.Hour) // of virtual time
			w.turn()
			w.sign()
		}
		all := w.lists(w.bus)
		for _, l := range all[len(all)-1].Streams {
			if l.Stream == "EV_pods" {
				t.Errorf("still listed: %+v", l)
			}
		}
		r, err := notary.Verify(t.Context(), w.bus, notary.Trust{Known: w.known})
		w.must(err)
		whole(t, r, true)
	})
}

// TestAPartIsNotedAsSuch: a file without some streams, left out on purpose, has no finding, and
// the report names them; if the file does not say that it is partial, that is a finding.
func TestAPartIsNotedAsSuch(t *testing.T) {
	live(t, 8, memory.Options{}, func(w *world) {
		w.steps(60)
		f := w.export(archive.Selection{Kinds: []kinds.Name{"pods"}})
		if !slices.Equal(f.about.Partial, []string{"kinds=pods"}) {
			t.Errorf("the file says %q", f.about.Partial)
		}
		r := f.verify(t, w.known)
		whole(t, r, true)
		if !slices.Equal(r.LeftOut, []string{"EV_deployments_apps"}) {
			t.Errorf("left out: %q", r.LeftOut)
		}
		smaller := &bytes.Buffer{}
		opened := f.open(t)
		defer opened.Close()
		_, err := archive.Export(t.Context(), opened, smaller, archive.Selection{Controllers: []string{}})
		w.must(err)
		if g := readFile(t, smaller.Bytes()); !slices.Equal(g.about.Partial, []string{"kinds=pods", "controllers="}) {
			t.Errorf("a file that was cut from that says %q", g.about.Partial)
		} else {
			whole(t, g.verify(t, w.known), true)
		}
		bare := f.copy()
		bare.messages[subject.NotaryStream] = slices.DeleteFunc(bare.pages(), func(m events.Message) bool { return m.Subject == listSubject })
		if r := bare.verify(t, w.known); len(r.Findings) > 0 || !slices.ContainsFunc(r.Remarks, func(f notary.Finding) bool {
			return f.Stream == subject.NotaryStream && strings.Contains(f.What, "of the streams is missing")
		}) {
			t.Errorf("a part without lists: %v, remarked %v", r.Findings, r.Remarks)
		}
		f.about.Partial = nil
		if r := f.verify(t, w.known); len(r.Findings) != 1 || r.Findings[0].Stream != "EV_deployments_apps" {
			t.Errorf("where the file does not say so: %v", r.Findings)
		}
	})
}

// TestARecordWithoutLists, by a notary of an older version, is valid, with a remark.
func TestARecordWithoutLists(t *testing.T) {
	live(t, 9, memory.Options{}, func(w *world) {
		w.turn()
		w.sign()
		f := w.export(archive.Selection{})
		f.messages[subject.NotaryStream] = slices.DeleteFunc(f.pages(), func(m events.Message) bool { return m.Subject == listSubject })
		r := f.verify(t, w.known)
		whole(t, r, true)
		if len(r.Remarks) != 1 || !strings.Contains(r.Remarks[0].What, "no list") {
			t.Errorf("remarks: %v", r.Remarks)
		}
		f.streams = slices.DeleteFunc(f.streams, func(s archive.Stream) bool { return s.Name == subject.OutcomeStream(controller) })
		if r := f.verify(t, w.known); len(r.Findings) != 1 || r.Findings[0].Stream != subject.OutcomeStream(controller) || !strings.Contains(r.Findings[0].What, "there are pages about it") {
			t.Errorf("without a stream verify finds %v, want that there are pages about it", r.Findings)
		}
		w.turn()
		w.sign() // these pages mention a list
		f = w.export(archive.Selection{})
		f.messages[subject.NotaryStream] = slices.DeleteFunc(f.pages(), func(m events.Message) bool { return m.Subject == listSubject })
		if r := f.verify(t, w.known); len(r.Findings) != 1 || !strings.Contains(r.Findings[0].What, "list 1 of the streams is missing") {
			t.Errorf("without the list that pages name verify finds %v, want that list 1 is missing", r.Findings)
		}
	})
}

// filtered is a bus without the messages of one subject.
type filtered struct {
	bus.NotaryBus
	subject string
}

func (f *filtered) Last(ctx context.Context, stream, of string) (events.Message, bool, error) {
	if of == f.subject {
		return events.Message{}, false, nil
	}
	return f.NotaryBus.Last(ctx, stream, of)
}

// TestListsThatAreGone are an error, like missing pages.
func TestListsThatAreGone(t *testing.T) {
	live(t, 10, memory.Options{}, func(w *world) {
		own := &disk{}
		of := func(b bus.NotaryBus, anew bool) *notary.Notary {
			return notary.New(b, notary.Options{Signer: w.signer, Known: w.known, Memory: own, BeginAnew: anew})
		}
		w.turn()
		w.must(of(w.bus, false).Round(w.Context()))
		w.must(of(w.bus, false).Round(w.Context()))
		if err := of(&filtered{w.bus, listSubject}, false).Round(w.Context()); !errors.Is(err, notary.ErrGone) || !strings.Contains(err.Error(), "list of the streams") {
			t.Errorf("the round: %v", err)
		}
		if all := w.lists(w.bus); len(all) != 1 {
			t.Errorf("lists: %+v", all)
		}
	})
}

// refusing is a bus that stores no page about one stream.
type refusing struct {
	bus.NotaryBus
	stream string
}

func (r *refusing) Store(ctx context.Context, m events.Message, expect uint64) (uint64, error) {
	if m.Subject == subject.Notary(r.stream) {
		return 0, errors.New("permission denied")
	}
	return r.NotaryBus.Store(ctx, m, expect)
}

// TestWhatIsNotSignedIsTold for each stream, even if no stream could be read.
func TestWhatIsNotSignedIsTold(t *testing.T) {
	live(t, 11, memory.Options{}, func(w *world) {
		on := &refusing{NotaryBus: w.bus}
		n := notary.New(on, notary.Options{Signer: w.signer, Known: w.known})
		w.turn()
		w.must(n.Round(w.Context()))
		began := time.Now()
		on.stream = turns
		for range 3 {
			time.Sleep(time.Minute) // of virtual time
			w.turn()
			if err := n.Round(w.Context()); err == nil {
				t.Error("a page that was refused is no error")
			}
		}
		other := subject.OutcomeStream(controller)
		if at := n.Signed(); !at[turns].Equal(began) || !at[other].Equal(time.Now()) {
			t.Errorf("signed: %v", at)
		}
		time.Sleep(time.Minute) // of virtual time
		on.stream = ""
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if err := n.Round(ctx); err == nil {
			t.Error("a round that can look at nothing is no error")
		}
		if at := n.Signed(); !at[turns].Equal(began) || time.Since(at[other]) < time.Minute {
			t.Errorf("when no stream can be looked at the last signatures are %v", at)
		}
	})
}

// TestListsGoOnWherePagesBeginAnew: beginning the pages about one stream anew, as told, does not
// break the lists, which still exist.
func TestListsGoOnWherePagesBeginAnew(t *testing.T) {
	live(t, 52, memory.Options{}, func(w *world) {
		own := &disk{}
		round := func(on bus.NotaryBus, anew bool) error {
			return notary.New(on, notary.Options{Signer: w.signer, Known: w.known, Memory: own, BeginAnew: anew}).Round(w.Context())
		}
		w.turn()
		w.must(round(w.bus, false))
		time.Sleep(11 * time.Minute) // of virtual time
		w.turn()
		w.must(round(&filtered{w.bus, subject.Notary(turns)}, true))
		if all := w.lists(w.bus); len(all) != 2 || all[1].Number != 2 || all[1].Break != "" {
			for _, l := range all {
				t.Errorf("there is list %d, with the break %q", l.Number, l.Break)
			}
		}
	})
}

// TestAStreamThatIsLeftOutIsFoundOnce if both a list and pages mention it; a deliberately
// partial record would have left the pages out as well.
func TestAStreamThatIsLeftOutIsFoundOnce(t *testing.T) {
	live(t, 53, memory.Options{}, func(w *world) {
		w.turn()
		w.sign()
		f, name := w.export(archive.Selection{}), subject.ShadowStream(controller)
		f.streams = slices.DeleteFunc(f.streams, func(s archive.Stream) bool { return s.Name == name })
		if r := f.verify(t, w.known); len(r.Findings) != 1 || r.Findings[0].Stream != name || !strings.Contains(r.Findings[0].What, "left out") {
			t.Errorf("found: %v", r.Findings)
		}
		f.about.Partial = []string{"controllers="}
		if r := f.verify(t, w.known); len(r.Findings) != 1 || r.Findings[0].Stream != name || !strings.Contains(r.Findings[0].What, "there are pages about it") {
			t.Errorf("of a part of a record verify finds %v, want that there are pages about the stream", r.Findings)
		}
	})
}
