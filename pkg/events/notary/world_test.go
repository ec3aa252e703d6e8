package notary_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/mod/sumdb/note"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// key makes a notary's keys, the same ones for the same seed.
func key(t testing.TB, seed uint64) (note.Signer, note.Verifier) {
	t.Helper()
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, seed))
	private, public, err := note.GenerateKey(bytes.NewReader(sum[:]), "notary.test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer, verifier
}

// world is a bus with running services, in virtual time.
type world struct {
	testing.TB
	*rand.Rand
	bus      *memory.Bus
	known    note.Verifiers
	signer   note.Signer
	notaries []*notary.Notary
	logs     map[kinds.Name]*log
	version  int
}

// log is the state of a kind's watcher.
type log struct {
	kind    kinds.Kind
	tally   events.Tally
	after   events.Link
	objects []events.Ref
	uids    map[events.Ref]types.UID
}

const controller = "deployment-controller"

// live runs a test in its own world.
func live(t *testing.T, seed uint64, o memory.Options, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		signer, verifier := key(t, 1)
		w := &world{
			TB: t, Rand: rand.New(rand.NewPCG(seed, 0)), bus: memory.New(o), signer: signer, known: note.VerifierList(verifier),
			logs: map[kinds.Name]*log{},
		}
		for _, k := range []kinds.Kind{kinds.Pods.Kind, kinds.Deployments.Kind} {
			w.must(w.bus.EnsureKind(t.Context(), k))
			w.logs[k.Name] = &log{kind: k, uids: map[events.Ref]types.UID{}}
		}
		w.must(w.bus.EnsureController(t.Context(), controller))
		w.must(w.bus.EnsureShadow(t.Context(), controller))
		w.notary()
		test(w)
		w.must(w.bus.Close())
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// notary starts another notary.
func (w *world) notary() *notary.Notary {
	n := notary.New(w.bus, notary.Options{Signer: w.signer, Known: w.known})
	w.notaries = append(w.notaries, n)
	return n
}

// sign makes one of the notaries do a round.
func (w *world) sign() {
	w.Helper()
	w.must(w.notaries[w.IntN(len(w.notaries))].Round(w.Context()))
}

// step makes a random event happen.
func (w *world) step() {
	time.Sleep(time.Duration(w.IntN(5000)) * time.Millisecond) // of virtual time
	name := []kinds.Name{kinds.Pods.Name, kinds.Deployments.Name}[w.IntN(2)]
	l := w.logs[name]
	switch n := w.IntN(20); {
	case n < 6 || len(l.objects) == 0:
		ref := events.Ref{Kind: name, Namespace: "shop", Name: fmt.Sprint("object-", w.version)}
		l.objects, l.uids[ref] = append(l.objects, ref), types.UID(fmt.Sprint("uid-", w.version))
		w.say(l, events.Is, ref)
	case n < 12:
		w.say(l, events.Is, l.objects[w.IntN(len(l.objects))])
	case n < 14:
		at := w.IntN(len(l.objects))
		ref := l.objects[at]
		l.objects = append(l.objects[:at], l.objects[at+1:]...)
		w.say(l, events.Gone, ref)
	case n < 16:
		w.say(l, events.Mark, events.Ref{})
	case n < 19:
		w.turn()
	default:
		w.sign()
	}
}

func (w *world) say(l *log, op events.Op, ref events.Ref) {
	w.Helper()
	w.version++
	d := events.Delta{
		Kind: l.kind.Name, Ref: ref, Op: op, UID: l.uids[ref], ResourceVersion: strconv.Itoa(w.version), Form: kinds.Full,
		ContentType: kinds.JSON, Body: fmt.Appendf(nil, `{"version":%d}`, w.version), At: time.Now(), After: l.after,
		By: events.Manager{Name: "stranger", Operation: "Update"},
	}
	if ref.Name == "" {
		d.Body, d.UID = nil, ""
	}
	if op == events.Gap {
		d.Body, _ = json.Marshal(events.Hole{Reason: "not looked at"})
	}
	l.tally.Fold(d)
	d.Census = l.tally.Census()
	m := events.Seal(subject.Message(d))
	a, err := w.bus.Append(w.Context(), l.kind.Name)
	w.must(err)
	w.must(a.Append(w.Context(), m))
	w.must(a.Flush(w.Context()))
	if op != events.Mark {
		l.after = events.Link{Sequence: a.Last(), Sum: m.Get(events.HeaderSum)}
	}
	w.must(a.Close())
}

// turn stores a turn with its outcome, and a message of a shadow.
func (w *world) turn() {
	key := events.Key{Namespace: "shop", Name: fmt.Sprint("key-", w.IntN(5))}
	for _, part := range []struct {
		on    string
		value any
	}{
		{subject.Turn(controller, events.LaneWrite, key), events.Turn{Controller: controller, Key: key, Because: "it is time", Now: time.Now()}},
		{subject.Outcome(controller, events.LaneWrite, key), events.Outcome{Controller: controller, Key: key, At: time.Now()}},
		{subject.ShadowTurn(controller, events.LaneWrite, key), events.Turn{Controller: controller, Key: key, Because: "it would be time", Now: time.Now()}},
	} {
		m, err := events.EncodeJSON(part.value, events.Trace{})
		w.must(err)
		m.Subject = part.on
		w.version++
		_, err = w.bus.Put(w.Context(), m, fmt.Sprint("id-", w.version))
		w.must(err)
	}
}

// file is an exported record, in parts that a test can change.
type file struct {
	about    archive.About
	streams  []archive.Stream
	messages map[string][]events.Message
}

func (w *world) export(s archive.Selection) *file {
	w.Helper()
	var out bytes.Buffer
	_, err := archive.Export(w.Context(), w.bus, &out, s)
	w.must(err)
	return readFile(w, out.Bytes())
}

func readFile(t testing.TB, text []byte) *file {
	t.Helper()
	from, err := archive.New("test", bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	f := &file{about: from.About(), streams: from.Streams(), messages: map[string][]events.Message{}}
	for _, s := range f.streams {
		err := from.Read(context.Background(), bus.Passage{Stream: s.Name}, func(batch []events.Message) error {
			f.messages[s.Name] = append(f.messages[s.Name], batch...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// open writes the file, and opens it.
func (f *file) open(t testing.TB) *archive.File {
	t.Helper()
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, f.about)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.streams {
		if err := w.Begin(s); err != nil {
			t.Fatal(err)
		}
		for _, m := range f.messages[s.Name] {
			if err := w.Add(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	opened, err := archive.New("test", bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// verify verifies a file as of its end.
func (f *file) verify(t testing.TB, known note.Verifiers) *notary.Report {
	t.Helper()
	opened := f.open(t)
	defer opened.Close()
	r, err := notary.Verify(context.Background(), opened, notary.Trust{Known: known, Now: f.about.Exported, Until: !f.about.Until.IsZero(), Partial: len(f.about.Partial) > 0, File: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
