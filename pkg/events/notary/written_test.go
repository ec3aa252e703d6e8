package notary_test

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// somePage is a page that continues a tree of five leaves, and has three entries.
func somePage(t *testing.T) *notary.Page {
	t.Helper()
	leaf := func(n byte) tlog.Hash { return tlog.RecordHash([]byte{n}) }
	tree := &notary.Tree{}
	for n := range byte(5) {
		if err := tree.Add(leaf(n)); err != nil {
			t.Fatal(err)
		}
	}
	edge, err := tree.Edge()
	if err != nil {
		t.Fatal(err)
	}
	p := &notary.Page{
		Checkpoint: notary.Checkpoint{
			Stream: "EV_pods", Created: time.Unix(0, 5), Number: 2, First: 11, Last: 20, Time: time.Unix(1000, 7).UTC(),
			Keeps: bus.Retention{Age: time.Hour, Bytes: 1 << 30}, Listed: 4, Break: "it was broken",
		},
		Before: 5, Edge: edge,
		Entries: []notary.Entry{
			{Sequence: 11, Leaf: leaf(5), Time: 900}, {Sequence: 12, Leaf: leaf(6), Time: 899, Expires: 4000}, {Sequence: 20, Leaf: leaf(7), Time: 990},
		},
	}
	completed(t, p)
	return p
}

// completed sets the checkpoint's tree to the one that its entries lead to.
func completed(t *testing.T, p *notary.Page) {
	t.Helper()
	tree, err := notary.Continue(p.Before, p.Edge)
	for _, e := range p.Entries {
		err = cmp.Or(err, tree.Add(e.Leaf))
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Size = tree.Size
	if p.Root, err = tree.Root(); err != nil {
		t.Fatal(err)
	}
}

// parted is a stored page, split into its signed lines and the rest.
func parted(t *testing.T, stored []byte) (lines []string, packed []byte) {
	t.Helper()
	head, rest, _ := bytes.Cut(stored, []byte("\n"))
	size, err := strconv.Atoi(string(head))
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(rest[:size]), "\n\n")
	lines = strings.Split(text, "\n")
	lines[6] = "page {sum}"
	return lines, rest[size:]
}

// TestAPageIsReadAsItWasWritten in all fields.
func TestAPageIsReadAsItWasWritten(t *testing.T) {
	signer, verifier := key(t, 1)
	p := somePage(t)
	stored, err := p.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := notary.Open(stored, note.VerifierList(verifier))
	if err != nil {
		t.Fatal(err)
	}
	got.Time, got.Created = got.Time.UTC(), got.Created.Local()
	p.Created = p.Created.Local()
	if got.Checkpoint != p.Checkpoint || got.Before != p.Before || !slices.Equal(got.Edge, p.Edge) || !slices.Equal(got.Entries, p.Entries) {
		t.Errorf("the page is read as\n%+v, want\n%+v", got, p)
	}
	lines, packed := parted(t, stored)
	if again := signed(t, signer, []byte(strings.Join(lines, "\n")), packed); !bytes.Equal(again, stored) {
		t.Fatalf("the page is written %q, want %q", stored, again)
	}
}

// TestWhatIsNoPage: malformed pages are rejected with a reason, even with the notary's
// signature.
func TestWhatIsNoPage(t *testing.T) {
	signer, verifier := key(t, 1)
	known := note.VerifierList(verifier)
	stored, err := somePage(t).Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	says := "" // reason of the refusal
	refused := func(what string, stored []byte) {
		t.Helper()
		if p, err := notary.Open(stored, known); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: it is taken for the page %+v, %v; want %q", what, p, err, says)
		}
	}
	lines, packed := parted(t, stored)
	written := func(lines []string, packed []byte) []byte {
		return signed(t, signer, []byte(strings.Join(lines, "\n")), packed)
	}
	for i, others := range [][]string{
		{"millrace checkpoint EV_pods", "another checkpoint EV_pods 5"}, {"eight"}, {"no hash", ""}, {"number 2 messages 11", "number 2 messages 11 20 list 4x", "number x messages 11 20"},
		{"time then", "at 1970-01-01T00:16:40Z"}, {"keeps 1", "keeps x 1"}, {"page", "page ?"}, {"broken by"},
	} {
		for _, other := range others {
			changed := slices.Clone(lines)
			changed[i] = other
			refused("with the line "+strconv.Quote(other), written(changed, packed))
		}
	}
	says = "it is not written as a page is"
	refused("with a line less", written(lines[:6], packed))
	refused("with a line more", written(append(slices.Clone(lines), "and so on"), packed))
	refused("with the number of a list that is none", written(slices.Concat(lines[:3], []string{"number 2 messages 11 20 list 4x"}, lines[4:]), packed))
	refused("with a break that is none", written(slices.Concat(lines[:7], []string{"broken by"}), packed))
	for n := range packed {
		refused("cut off behind "+strconv.Itoa(n), written(lines, packed[:n]))
	}
	refused("with a byte more", written(lines, append(slices.Clone(packed), 0)))
	const at = 1 + 1 + 1 + 2*tlog.HashSize + 1 + 1 // offset of the first entry's time, which has two bytes
	refused("with a time that is no number", written(lines, slices.Concat(packed[:at], bytes.Repeat([]byte{0xff}, 10), packed[at+2:])))
	says = ""
	refused("with other entries than were signed", append(slices.Clone(stored[:len(stored)-1]), stored[len(stored)-1]+1))
	version := slices.Clone(packed)
	version[0]++
	refused("of another version", written(lines, version))
	size, rest, _ := bytes.Cut(stored, []byte("\n"))
	for _, other := range []string{"-1", "+" + string(size), "0" + string(size), strconv.Itoa(len(rest) + 1), "", "x"} {
		refused("of the size "+strconv.Quote(other), append([]byte(other+"\n"), rest...))
	}
	stranger, _ := key(t, 2)
	foreign, err := somePage(t).Sign(stranger)
	if err != nil {
		t.Fatal(err)
	}
	refused("of another notary", foreign)
}

// TestAPageMustComeToItsTree: a page is rejected if its entries are out of order, outside of its
// range, or do not lead to the signed tree.
func TestAPageMustComeToItsTree(t *testing.T) {
	signer, verifier := key(t, 1)
	for what, change := range map[string]func(p *notary.Page){
		"an entry before the first message": func(p *notary.Page) { p.First = 12 },
		"an entry behind the last message":  func(p *notary.Page) { p.Last = 19 },
		"the same message twice":            func(p *notary.Page) { p.Entries[1].Sequence = 11 },
		"messages out of order":             func(p *notary.Page) { p.Entries[1].Sequence = 30; p.Last = 40 },
		"a tree of another size":            func(p *notary.Page) { p.Size++ },
		"another tree":                      func(p *notary.Page) { p.Root[0]++ },
		"another edge":                      func(p *notary.Page) { p.Edge[0][0]++ },
		"an edge of another tree":           func(p *notary.Page) { p.Edge = p.Edge[:1] },
		"an edge that is too long":          func(p *notary.Page) { p.Edge = append(p.Edge, make([]tlog.Hash, 70)...) },
		"a tree without an index":           func(p *notary.Page) { p.Before = 1<<61 + 1 },
	} {
		p := somePage(t)
		change(p)
		stored, err := p.Sign(signer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := notary.Open(stored, note.VerifierList(verifier)); err == nil {
			t.Errorf("%s: it is taken for a page", what)
		}
	}
}

// TestATreeGoesOnFromItsEdge: at each size it has the root of RFC 6962, and continues from its
// edge alone; it holds only a few hashes.
func TestATreeGoesOnFromItsEdge(t *testing.T) {
	var hashes []tlog.Hash
	stored := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, err error) {
		for _, i := range at {
			out = append(out, hashes[i])
		}
		return out, nil
	})
	tree := &notary.Tree{}
	for n := range int64(300) {
		leaf := tlog.RecordHash([]byte(strconv.FormatInt(n, 10)))
		more, err := tlog.StoredHashesForRecordHash(n, leaf, stored)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, more...)
		want, err := tlog.TreeHash(n+1, stored)
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Add(leaf); err != nil {
			t.Fatal(err)
		}
		if got, err := tree.Root(); err != nil || got != want {
			t.Fatalf("the root of %d leaves is %v (%v), want %v", n+1, got, err, want)
		}
		if held := tree.Held(); held > 100 {
			t.Fatalf("of %d leaves the tree holds %d hashes, want 100 at most", n+1, held)
		}
		if n > 12 && n != 150 {
			continue
		}
		edge, err := tree.Edge()
		if err != nil {
			t.Fatal(err)
		}
		if tree, err = notary.Continue(n+1, edge); err != nil {
			t.Fatal(err)
		}
	}
	edge, _ := tree.Edge()
	for what, c := range map[string]struct {
		size int64
		edge []tlog.Hash
	}{
		"of fewer than no leaves": {-1, nil}, "of too many leaves": {1<<61 + 1, edge[:2]}, "with a hash less": {tree.Size, edge[1:]}, "with a hash more": {tree.Size, append(edge, tlog.Hash{})},
	} {
		if _, err := notary.Continue(c.size, c.edge); err == nil {
			t.Errorf("a tree %s is gone on from", what)
		}
	}
	if most, err := notary.Continue(1<<61, edge[:1]); err != nil || most.Size != 1<<61 {
		t.Errorf("the largest tree is %+v (%v)", most, err)
	}
}

// TestWhatIsNoList: a signed text that is not in the form of a list is rejected.
func TestWhatIsNoList(t *testing.T) {
	signer, verifier := key(t, 1)
	known := note.VerifierList(verifier)
	list := notary.List{Number: 3, Before: [32]byte{1}, Time: time.Unix(7, 0), Break: "because", Streams: []notary.Listed{
		{Stream: "EV_pods", Created: time.Unix(0, 5), Page: 2, Last: 9}, {Stream: "TURN_c", Created: time.Unix(0, 6), Page: 1, Last: 1, Gone: time.Unix(6, 0)},
	}}
	stored, err := list.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(stored), "\n\n")
	lines := strings.Split(text, "\n")
	open := func(lines []string) (*notary.List, error) {
		t.Helper()
		signed, err := note.Sign(&note.Note{Text: strings.Join(lines, "\n") + "\n"}, signer)
		if err != nil {
			t.Fatal(err)
		}
		return notary.OpenList(signed, known)
	}
	if l, err := open(lines); err != nil || l.Break != "because" || len(l.Streams) != 2 {
		t.Fatalf("the list is read as %+v (%v)", l, err)
	}
	if l, err := open(lines[:3]); err != nil || l.Number != 3 || len(l.Streams) != 0 {
		t.Errorf("a list of no streams is read as %+v (%v)", l, err)
	}
	sum := base64.StdEncoding.EncodeToString(make([]byte, 31))
	for i, others := range [][]string{
		{"another list"}, {"number 3", strings.Replace(lines[1], "3", "03", 1), "number x before " + sum, "number 3 before ?", "number 3 before " + sum}, {"time", "time then"}, {"broke because"},
		{"stream EV_pods 5 2", "stream EV_pods 5 2 9 9", "stream UV_pods 5 2 9", "stream TURN_c 5 2 9"}, {"stream TURN_c 6 1 1 went 6", "stream TURN_c 6 1 1 gone x"},
	} {
		for _, other := range others {
			changed := slices.Clone(lines)
			changed[i] = other
			if l, err := open(changed); err == nil {
				t.Errorf("with the line %q it is taken for the list %+v", other, l)
			}
		}
	}
	for n := 1; n < 3; n++ {
		if l, err := open(lines[:n]); err == nil {
			t.Errorf("the first %d lines are taken for %+v", n, l)
		}
	}
}

// TestWhoseListItIs: a list has only signatures of known keys, in canonical form.
func TestWhoseListItIs(t *testing.T) {
	signer, verifier := key(t, 1)
	known := note.VerifierList(verifier)
	list := notary.List{Number: 3, Time: time.Unix(7, 0)}
	stored, err := list.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(stored), "\n\n")
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	at := bytes.LastIndexByte(stored, '=') - 1 // this letter has unused bits
	loose := slices.Clone(stored)
	loose[at] = alphabet[strings.IndexByte(alphabet, stored[at])+1]
	if _, err := notary.OpenList(loose, known); err == nil {
		t.Error("a list whose signature is written otherwise is taken for one")
	}
	stranger, other := key(t, 2)
	if foreign, err := list.Sign(stranger); err != nil {
		t.Error(err)
	} else if _, err := notary.OpenList(foreign, known); err == nil {
		t.Error("a list of another notary is taken for one")
	}
	// The notary never writes a second signature.
	twice, err := note.Sign(&note.Note{Text: text + "\n"}, signer, stranger)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := notary.OpenList(twice, known); err == nil {
		t.Error("a list with a signature that is not known is taken for one")
	}
	if _, err := notary.OpenList(twice, note.VerifierList(verifier, other)); err != nil {
		t.Errorf("a list with two signatures that are known: %v", err)
	}
}

// TestKeysOfANotary: a generated pair belongs together, its public key is valid from then on,
// and errors say what is wrong with a text that is no key.
func TestKeysOfANotary(t *testing.T) {
	began := time.Now().Truncate(time.Second)
	private, public, err := notary.Generate("notary.test")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(public, "# notary.test\n-----BEGIN ") {
		t.Errorf("the public part is %s", public)
	}
	signer, own, err := notary.Signer(" " + private + "\n")
	if err != nil || signer.Name() != "notary.test" {
		t.Fatalf("the private part is of %v (%v)", signer, err)
	}
	keys := &notary.Keys{}
	if !keys.Empty() {
		t.Error("no keys are some")
	}
	if err := keys.Read(public); err != nil || keys.Empty() {
		t.Fatalf("read: %v", err)
	}
	if v, err := keys.Verifier("notary.test", own.KeyHash()); err != nil || v.KeyHash() != own.KeyHash() {
		t.Errorf("the key is not found: %v", err)
	}
	if _, err := keys.Verifier("notary.test", own.KeyHash()+1); err == nil {
		t.Error("another key is found")
	}
	trust, err := sign.ParseTrust([]byte(public))
	if err != nil || trust[0].NotBefore.Before(began) || trust[0].NotBefore.After(time.Now()) {
		t.Errorf("the key is valid from %v (%v), want from now", trust, err)
	}
}

// TestWhatIsNoKeyOfANotary is rejected with the reason; lines with keys, in the form of older
// versions, are accepted.
func TestWhatIsNoKeyOfANotary(t *testing.T) {
	private, public, err := notary.Generate("notary.test")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"with space", "with+plus", ""} {
		if _, _, err := notary.Generate(name); err == nil {
			t.Errorf("a key is made for %q", name)
		}
	}
	for says, text := range map[string]string{
		"no public key": "# a remark\n\n", "private key": "# mine\n" + private, "is no public key of a notary": "notary.test+key", "": "-----BEGIN NONSENSE-----\n",
	} {
		if err := new(notary.Keys).Read(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want %q", text, err, says)
		}
	}
	_, older := key(t, 1)
	line, err := note.NewEd25519VerifierKey("notary.old", make(ed25519.PublicKey, ed25519.PublicKeySize))
	if err != nil {
		t.Fatal(err)
	}
	plain := &notary.Keys{}
	if err := plain.Read("# as older versions wrote them\n" + line + "\n"); err != nil || plain.Empty() {
		t.Errorf("a line with a key: %v", err)
	}
	plain.Add(older)
	if _, err := plain.Verifier(older.Name(), older.KeyHash()); err != nil {
		t.Errorf("a key that was added is not found: %v", err)
	}
	rest := strings.Split(private, "+")
	for what, text := range map[string]string{
		"nothing": "", "a public key": public, "another algorithm": strings.Join(rest[:4], "+") + "+" + base64.StdEncoding.EncodeToString(append([]byte{9}, make([]byte, 32)...)),
	} {
		if _, _, err := notary.Signer(text); err == nil {
			t.Errorf("%s is a private key", what)
		}
	}
}

// TestALeafCoversAllOfAMessage: messages that differ in anything have different leaves, and
// equal ones the same leaf.
func TestALeafCoversAllOfAMessage(t *testing.T) {
	base := func() events.Message {
		return events.Message{
			Stream: "TURN_c", Subject: "turn.c.act", Sequence: 7, Time: time.Unix(5, 6), Header: map[string][]string{"A": {"1", "2"}, "B": {"3"}}, Data: []byte("body"),
		}
	}
	same := base()
	same.Header["Empty"] = nil
	if notary.Leaf(same) != notary.Leaf(base()) {
		t.Error("a header without a value counts")
	}
	text := make([]byte, 9)
	_, _ = rand.Read(text)
	seen := map[tlog.Hash]string{notary.Leaf(base()): "the message"}
	for what, change := range map[string]func(m *events.Message){
		"stream": func(m *events.Message) { m.Stream += "x" }, "subject": func(m *events.Message) { m.Subject += "x" }, "sequence": func(m *events.Message) { m.Sequence++ },
		"time": func(m *events.Message) { m.Time = m.Time.Add(1) }, "body": func(m *events.Message) { m.Data = text },
		"no body": func(m *events.Message) { m.Data = nil }, "values in one": func(m *events.Message) { m.Header["A"] = []string{"12"} },
		"values in another order": func(m *events.Message) { m.Header["A"] = []string{"2", "1"} }, "a value less": func(m *events.Message) { m.Header["A"] = []string{"1"} },
		"a value elsewhere": func(m *events.Message) { m.Header = map[string][]string{"A": {"1"}, "B": {"2", "3"}} }, "a header less": func(m *events.Message) { delete(m.Header, "B") },
		"a part of the stream in the subject": func(m *events.Message) { m.Stream, m.Subject = "TURN_", "cturn.c.act" },
		"a header in the body":                func(m *events.Message) { delete(m.Header, "B"); m.Data = append([]byte("\x01B\x01\x013"), m.Data...) },
	} {
		m := base()
		change(&m)
		if other, twice := seen[notary.Leaf(m)]; twice {
			t.Errorf("%s has the leaf of %s", what, other)
		}
		seen[notary.Leaf(m)] = what
	}
}

// TestAFindingSaysWhere in one line.
func TestAFindingSaysWhere(t *testing.T) {
	for want, f := range map[string]notary.Finding{
		"S: it is gone": {Stream: "S", What: "it is gone"}, "S 3: it is gone": {Stream: "S", Sequence: 3, What: "it is gone"},
		"S 4: it is gone": {Stream: "S", Sequence: 4, To: 4, What: "it is gone"}, "S 4 to 5: it is gone": {Stream: "S", Sequence: 4, To: 5, What: "it is gone"},
	} {
		if got := f.String(); got != want {
			t.Errorf("%+v is %q, want %q", f, got, want)
		}
	}
}

// mute is a signer whose key cannot be used.
type mute struct{ note.Signer }

func (mute) Sign([]byte) ([]byte, error) { return nil, errors.New("the key is locked") }

// TestWhatCannotBeSigned is an error, and nothing is stored.
func TestWhatCannotBeSigned(t *testing.T) {
	live(t, 51, memory.Options{}, func(w *world) {
		locked := mute{w.signer}
		if _, err := (&notary.List{Number: 1}).Sign(locked); err == nil || !strings.Contains(err.Error(), "sign the list of streams") {
			t.Errorf("a list: %v", err)
		}
		if _, err := somePage(t).Sign(locked); err == nil || !strings.Contains(err.Error(), "sign the checkpoint of EV_pods") {
			t.Errorf("a page: %v", err)
		}
		w.turn()
		err := notary.New(w.bus, notary.Options{Signer: locked, Known: w.known}).Round(w.Context())
		if err == nil || !strings.Contains(err.Error(), "the key is locked") || w.pagesAbout(turns) != 0 || len(w.lists(w.bus)) != 0 {
			t.Errorf("a round: %v, and there are %d pages", err, w.pagesAbout(turns))
		}
	})
}
