package sign

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// A key counts from a minute before its Not-Before, up to and including Not-After, and until it
// is revoked.
func TestAKeyCountsUpToItsBounds(t *testing.T) {
	key := Key{ID: "k", NotBefore: noon, NotAfter: noon.Add(3 * time.Hour)}
	revoked := Key{ID: "k", NotBefore: noon, Revoked: noon.Add(2 * time.Hour)}
	for name, c := range map[string]struct {
		key  Key
		at   time.Duration
		want error
	}{
		"a minute ahead": {key, -time.Minute, nil}, "more than that": {key, -time.Minute - 1, ErrUnproven},
		"the last moment": {key, 3 * time.Hour, nil}, "the next one": {key, 3*time.Hour + 1, ErrUnproven},
		"just before it is revoked": {revoked, 2*time.Hour - 1, nil}, "when it is revoked": {revoked, 2 * time.Hour, ErrRevoked},
		"without bounds": {Key{}, -1000 * time.Hour, nil},
	} {
		if err := c.key.Counts(noon.Add(c.at)); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// An outcome counts if it was stored within a minute of being signed, and a turn within the
// writer's limit, or two minutes for its own signer.
func TestHowFarApartTheTimesMayBe(t *testing.T) {
	p := newParty(t, noon)
	trust, at := trusting(t, p.public), noon.Add(time.Hour)
	said := events.Message{Subject: "outcome.c.act.1._.ns.web", Header: map[string][]string{headerID: {"one"}}, Data: []byte("{}")}
	p.Outcome(said, "one", at)
	for apart, counts := range map[time.Duration]bool{
		time.Minute: true, -time.Minute: true, time.Minute + 1: false, -time.Minute - 1: false,
	} {
		said.Time = at.Add(apart)
		for what, err := range map[string]error{"the reader": trust.Outcome(said), "its signer": p.OwnOutcome(said)} {
			if (err == nil) != counts {
				t.Errorf("an outcome stored %v after it was signed, to %s: %v", apart, what, err)
			}
		}
	}
	for apart, own := range map[time.Duration]bool{0: true, 2 * time.Minute: true, 2*time.Minute + 1: false} {
		m := p.stored(at, web, "{}")
		m.Time = at.Add(apart)
		if err := trust.Turn(m, apart); err != nil {
			t.Errorf("a turn %v after it was signed, which may be: %v", apart, err)
		}
		if err := trust.Turn(m, apart-1); err == nil {
			t.Errorf("a turn %v after it was signed counts where that may not be", apart)
		}
		if err := p.OwnTurn(m); (err == nil) != own {
			t.Errorf("a turn of its own %v after it was signed: %v", apart, err)
		}
	}
}

// All messages stored before the first key is valid are history, and no later ones.
func TestWhereHistoryEnds(t *testing.T) {
	early, late := newParty(t, noon), newParty(t, noon.Add(time.Hour))
	always := early.bounded(t, func(k *Key) { k.NotBefore = time.Time{} })
	for _, files := range [][][]byte{{early.public, late.public}, {late.public, early.public}} {
		trust := trusting(t, files...)
		for at, history := range map[time.Duration]bool{-1: true, 0: false, time.Hour: false} {
			if got := trust.History(events.Message{Time: noon.Add(at)}); got != history {
				t.Errorf("%v after the first key began it is history: %t", at, got)
			}
		}
	}
	if trusting(t, late.public, always).History(events.Message{Time: noon.Add(-1000 * time.Hour)}) {
		t.Error("with a key without a beginning a message counts as history")
	}
	var none *Trust
	if !none.History(events.Message{Time: noon}) {
		t.Error("without keys a message has to be signed")
	}
}

// Revoked knows the time for trusted keys, by the key that a message names.
func TestWhenTheKeyOfAMessageWasRevoked(t *testing.T) {
	p, other := newParty(t, noon), newParty(t, noon)
	trust := trusting(t, p.bounded(t, func(k *Key) { k.Revoked = noon.Add(time.Hour) }))
	mine, theirs := p.stored(noon, web, "{}"), other.stored(noon, web, "{}")
	if By(mine) != p.ID() || By(events.Message{}) != "" || !Signed(mine) || Signed(events.Message{}) {
		t.Errorf("a message says that %q has signed it, not %q", By(mine), p.ID())
	}
	var none *Trust
	if !trust.Revoked(mine).Equal(noon.Add(time.Hour)) || !trust.Revoked(theirs).IsZero() || !trust.Revoked(events.Message{}).IsZero() || !none.Revoked(mine).IsZero() {
		t.Errorf("the key was revoked at %v, and one that is not known at %v", trust.Revoked(mine), trust.Revoked(theirs))
	}
}

// Any server header that may have moved a message makes it not count; the header of its own
// place does not, nor does any other header.
func TestWhichHeadersOfTheServerAMessageMayHave(t *testing.T) {
	p := newParty(t, noon)
	trust := trusting(t, p.public)
	for header, may := range map[string]bool{
		"Nats-Expected-Stream": false, "Nats-Expected-Last-Sequence": false, "Nats-Batch-Id": false, "Nats-Schedule": false, "Nats-Schedule-Target": false,
		"Nats-Stream-Source": false, "Nats-Rollup": false, "Nats-Incr": false, "Nats-Counter-Sources": false,
		"Nats-Msg-Id": true, "Millrace-Epoch": true, "X-Nats-Rollup": true,
	} {
		m := p.stored(noon, web, "{}")
		m.Header[header] = []string{"x"}
		if err := trust.Turn(m, TurnWithin); (err == nil) != may {
			t.Errorf("with the header %s the turn is trusted with %v, want it trusted: %t", header, err, may)
		}
	}
	said := events.Message{Subject: "outcome.c.act.1._.ns.web", Header: map[string][]string{headerID: {"one"}, headerExpect: {"6"}}, Time: noon}
	p.Outcome(said, "one", noon)
	if err := trust.Outcome(said); err == nil || !strings.Contains(err.Error(), headerExpect) {
		t.Errorf("an outcome with the place of a turn: %v", err)
	}
}

// An encoded key decodes to the same key.
func TestAKeyIsReadAsItIsWritten(t *testing.T) {
	p := newParty(t, noon)
	keys, err := ParseTrust(p.public)
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	plain := Key{ID: keys[0].ID, Public: keys[0].Public}
	bounded := plain
	bounded.NotBefore, bounded.NotAfter, bounded.Revoked = noon.Add(1), noon.Add(time.Hour+2), noon.Add(time.Minute+3)
	bounded.Controllers = []string{"a", "b-2"}
	for _, k := range []Key{plain, bounded, keys[0]} {
		text, err := k.PEM()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseTrust(text); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], k) {
			t.Errorf("%+v is read as %+v, %v", k, got, err)
		}
	}
	if len(plain.ID) != 16 || plain.ID != p.ID() {
		t.Errorf("the key %q is called %q", p.ID(), plain.ID)
	}
}

// An error of a file is reported once, and again if the file was valid in between.
func TestAFileThatIsWrongAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	synctest.Test(t, func(t *testing.T) {
		p := newParty(t, time.Now())
		put := func(text []byte) {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // by the clock of the bubble
		}
		put(p.public)
		warned := 0
		trust, err := TrustFile(path, func(error) { warned++ })
		if err != nil {
			t.Fatal(err)
		}
		silent, err := TrustFile(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			text []byte
			want int
		}{{[]byte("x"), 1}, {[]byte("y"), 1}, {p.public, 1}, {[]byte("x"), 2}, {p.private, 3}} {
			put(step.text)
			m := p.stored(time.Now(), web, "{}")
			if err := errors.Join(trust.Turn(m, TurnWithin), silent.Turn(m, TurnWithin)); err != nil || warned != step.want {
				t.Errorf("at step %d it has warned %d times, want %d (%v)", i, warned, step.want, err)
			}
		}
	})
}

// A hint's signature has only one valid form.
func TestASignatureOfAHintIsWrittenInOneWay(t *testing.T) {
	p := newParty(t, noon)
	trust := trusting(t, p.public)
	signed := string(p.Hint("writers", []byte(`{"a":1}`), noon))
	for name, text := range map[string]string{
		"with a member more": strings.Replace(signed, `"key":`, `"x":1,"key":`, 1), "with a space": strings.Replace(signed, `"key":`, `"key": `, 1),
		"without its end": strings.TrimSuffix(signed, "}"), "cut": strings.Replace(signed, `"signature":"`, `"signature":"","x":"`, 1),
	} {
		if err := trust.Hint("writers", []byte(text), noon); !errors.Is(err, ErrUnproven) || strings.Contains(err.Error(), "has not signed") {
			t.Errorf("%s: the hint is trusted with %v, want ErrUnproven", name, err)
		}
	}
}

// Provided keys are valid from the given moment, in a directory that only their owner can read.
func TestFromWhenProvidedKeysCount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "signing")
	made, err := ProvideFrom(dir, noon)
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range []Pair{made.Turns, made.Outcomes} {
		trust, err := TrustFile(pair.Public, nil)
		if err != nil || !trust.History(events.Message{Time: noon.Add(-1)}) || trust.History(events.Message{Time: noon}) {
			t.Errorf("the key %s is valid from another moment on (%v)", pair.Public, err)
		}
		if info, err := os.Stat(pair.Public); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the mode of %s is not 0600 (%v)", pair.Public, err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v", err)
	}
	names := []string{made.Turns.Private, made.Turns.Public, made.Outcomes.Private, made.Outcomes.Public}
	if slices.Sort(names); len(slices.Compact(names)) != 4 {
		t.Errorf("two keys are in one file: %v", names)
	}
}

// Errors repeat at most 32 bytes of a message's key ID.
func TestALongNameIsCut(t *testing.T) {
	for name, want := range map[string]string{"": "", "a": "a", strings.Repeat("a", 32): strings.Repeat("a", 32), strings.Repeat("a", 33): strings.Repeat("a", 32)} {
		if got := cut(name); got != want {
			t.Errorf("%q is cut to %q", name, got)
		}
	}
}

// A place is a decimal number; if two headers are wrong, the error names the first.
func TestWhereATurnIsMeantToLie(t *testing.T) {
	p := newParty(t, noon)
	trust := trusting(t, p.public)
	m := events.Message{Subject: web, Header: map[string][]string{headerExpect: {"1234567890"}}, Time: noon, Sequence: 1234567891}
	p.Turn(m, 1234567890, noon)
	if err := trust.Turn(m, TurnWithin); err != nil {
		t.Errorf("in its place: %v", err)
	}
	m.Header[HeaderSignature], m.Header[HeaderKey] = []string{"", ""}, nil
	if err := trust.Turn(m, TurnWithin); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), HeaderSignature+" is there 2 times") {
		t.Errorf("a turn with two signatures and no key: %v, want ErrUnproven", err)
	}
}
