package sign

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// party is a signer with its trust file.
type party struct {
	private, public []byte
	*Signer
}

func newParty(t testing.TB, from time.Time) party {
	t.Helper()
	private, public, err := generate(from)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return party{private, public, signer}
}

func trusting(t testing.TB, files ...[]byte) *Trust {
	t.Helper()
	trust, err := NewTrust(bytes.Join(files, nil))
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

// bounded is a party's key with another validity.
func (p party) bounded(t testing.TB, change func(*Key)) []byte {
	t.Helper()
	keys, err := ParseTrust(p.public)
	if err != nil {
		t.Fatal(err)
	}
	change(&keys[0])
	text, err := keys[0].PEM()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// stored is a turn that was signed and stored at the given times.
func (p party) stored(at time.Time, subject, body string) events.Message {
	m := events.Message{Subject: subject, Header: map[string][]string{headerExpect: {"6"}}, Data: []byte(body)}
	p.Turn(m, 6, at)
	m.Stream, m.Sequence, m.Time = "TURN_c", 7, at
	return m
}

const web = "turn.c.act.1._.ns.web"

// TestAnythingElseDoesNotCount changes each part of a turn that counts.
func TestAnythingElseDoesNotCount(t *testing.T) {
	p, other := newParty(t, noon), newParty(t, noon)
	trust := trusting(t, p.public)
	at := noon.Add(time.Hour)
	if err := trust.Turn(p.stored(at, web, "{}"), TurnWithin); err != nil {
		t.Fatalf("a turn as it was signed: %v", err)
	}
	if err := p.OwnTurn(p.stored(at, web, "{}")); err != nil {
		t.Fatalf("a turn of its own: %v", err)
	}
	set := func(header string, values ...string) func(*events.Message) {
		return func(m *events.Message) { m.Header[header] = values }
	}
	for name, change := range map[string]func(*events.Message){
		"another body":                      func(m *events.Message) { m.Data = []byte("{} ") },
		"no body":                           func(m *events.Message) { m.Data = nil },
		"another subject":                   func(m *events.Message) { m.Subject = "turn.d.act.1._.ns.web" },
		"another lane":                      func(m *events.Message) { m.Subject = "turn.c.tell.1._.ns.web" },
		"another place":                     set(headerExpect, "5"),
		"two places":                        set(headerExpect, "6", "5"),
		"no place":                          func(m *events.Message) { delete(m.Header, headerExpect) },
		"a place that is written otherwise": set(headerExpect, "06"),
		"a place behind itself":             func(m *events.Message) { m.Sequence = 6 },
		"a place on another subject":        set("Nats-Expected-Last-Subject-Sequence-Subject", "turn.d.>"),
		"from another stream":               set("Nats-Stream-Source", "X 1"),
		"stored late":                       func(m *events.Message) { m.Time = at.Add(TurnWithin + time.Second) },
		"stored before it was signed":       func(m *events.Message) { m.Time = at.Add(-TurnWithin - time.Second) },
		"another time":                      set(HeaderAt, at.Add(time.Second).Format(time.RFC3339Nano)),
		"no time":                           set(HeaderAt, "noon"),
		"another key":                       set(HeaderKey, "00"),
		"two keys":                          func(m *events.Message) { m.Header[HeaderKey] = append(m.Header[HeaderKey], "00") },
		"no signature":                      func(m *events.Message) { delete(m.Header, HeaderSignature) },
		"an empty signature":                set(HeaderSignature, ""),
		"another's signature":               func(m *events.Message) { other.Turn(*m, 6, at) },
		"another's under our name": func(m *events.Message) {
			id := m.Get(HeaderKey)
			other.Turn(*m, 6, at)
			m.Header[HeaderKey] = []string{id}
		},
		"an outcome's signature": func(m *events.Message) { p.Outcome(*m, "6", at) },
	} {
		m := p.stored(at, web, "{}")
		change(&m)
		if err := trust.Turn(m, TurnWithin); !errors.Is(err, ErrUnproven) && !errors.Is(err, ErrUnsigned) {
			t.Errorf("%s: the turn is trusted with %v, want ErrUnproven or ErrUnsigned", name, err)
		}
		if err := p.OwnTurn(m); !errors.Is(err, ErrUnproven) && !errors.Is(err, ErrUnsigned) {
			t.Errorf("%s, as one's own: %v", name, err)
		}
	}
}

// TestEveryBitCounts flips every bit of the signed parts and of the signature.
func TestEveryBitCounts(t *testing.T) {
	p := newParty(t, noon)
	trust := trusting(t, p.public)
	rapid.Check(t, func(r *rapid.T) {
		m := p.stored(noon, web, rapid.StringN(1, 200, -1).Draw(r, "body"))
		part := rapid.SampledFrom([]string{"subject", "body", headerExpect, HeaderAt, HeaderKey, HeaderSignature}).Draw(r, "part")
		flip := func(text string) string {
			out := []byte(text)
			out[rapid.IntRange(0, len(out)-1).Draw(r, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(r, "bit")
			return string(out)
		}
		switch part {
		case "subject":
			m.Subject = flip(m.Subject)
		case "body":
			m.Data = []byte(flip(string(m.Data)))
		default:
			m.Header = maps.Clone(m.Header)
			m.Header[part] = []string{flip(m.Get(part))}
		}
		if trust.Turn(m, TurnWithin) == nil {
			r.Fatalf("with a flipped bit in its %s the turn is trusted: %q %q", part, m.Subject, m.Header)
		}
	})
}

// TestAKeyHasItsTime checks messages against the validity of a key, by when they were stored.
func TestAKeyHasItsTime(t *testing.T) {
	p, later := newParty(t, noon), newParty(t, noon.Add(time.Hour))
	unsigned := events.Message{Subject: web, Header: map[string][]string{}, Stream: "TURN_c", Sequence: 7}
	for _, c := range []struct {
		name  string
		keys  []byte
		at    time.Duration
		plain bool
		want  error
	}{
		{"it counts", p.public, time.Minute, false, nil},
		{"unsigned before the first key is history", p.public, -time.Second, true, nil},
		{"unsigned from then on is not", p.public, time.Second, true, ErrUnsigned},
		{"a key that never began leaves no history", p.bounded(t, func(k *Key) { k.NotBefore = time.Time{} }), -time.Hour, true, ErrUnsigned},
		{"retired, before", p.bounded(t, func(k *Key) { k.NotAfter = noon.Add(time.Hour) }), time.Minute, false, nil},
		{"retired, after", p.bounded(t, func(k *Key) { k.NotAfter = noon.Add(time.Hour) }), 2 * time.Hour, false, ErrUnproven},
		{"revoked, before", p.bounded(t, func(k *Key) { k.Revoked = noon.Add(time.Hour) }), time.Minute, false, nil},
		{"revoked, after", p.bounded(t, func(k *Key) { k.Revoked = noon.Add(time.Hour) }), time.Hour, false, ErrRevoked},
		{"too early", append(slices.Clone(later.public), p.bounded(t, func(k *Key) { k.NotBefore = noon.Add(2 * time.Hour) })...), 90 * time.Minute, false, ErrUnproven},
		{"beside another", append(slices.Clone(later.public), p.public...), time.Minute, false, nil},
		{"not trusted", later.public, 2 * time.Hour, false, ErrUnproven},
	} {
		m := p.stored(noon.Add(c.at), web, "{}")
		if c.plain {
			m = unsigned
			m.Time = noon.Add(c.at)
		}
		if err := trusting(t, c.keys).Turn(m, TurnWithin); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestAKeyHasItsControllers: a key for some controllers counts for their turns and outcomes, and
// for no other controller's.
func TestAKeyHasItsControllers(t *testing.T) {
	p := newParty(t, noon)
	at := noon.Add(time.Hour)
	for _, c := range []struct {
		of     []string
		counts bool
	}{{nil, true}, {[]string{"c"}, true}, {[]string{"b", "c"}, true}, {[]string{"b"}, false}, {[]string{"c-controller"}, false}} {
		trust := trusting(t, p.bounded(t, func(k *Key) { k.Controllers = c.of }))
		said := events.Message{Subject: "outcome.c.act.1._.ns.web", Header: map[string][]string{headerID: {"one"}}, Data: []byte("{}")}
		p.Outcome(said, "one", at)
		said.Time = at
		for what, err := range map[string]error{"turn": trust.Turn(p.stored(at, web, "{}"), TurnWithin), "outcome": trust.Outcome(said)} {
			if (err == nil) != c.counts || err != nil && !errors.Is(err, ErrUnproven) {
				t.Errorf("a key for %q, %s of c: %v", c.of, what, err)
			}
		}
	}
	for _, wrong := range []string{"", "c,", "c d", "*", "turn.c"} {
		text := bytes.Replace(p.public, []byte("Not-Before"), []byte("Controllers: "+wrong+"\nNot-Before"), 1)
		if _, err := ParseTrust(text); err == nil || !strings.Contains(err.Error(), "names of controllers") {
			t.Errorf("a key for %q: %v", wrong, err)
		}
	}
}

// TestKeysChangeWhileTheyAreUsed rewrites the files: a key changes without a pause, a revocation
// applies at once, and a broken file changes nothing.
func TestKeysChangeWhileTheyAreUsed(t *testing.T) {
	dir := t.TempDir()
	key, keys := filepath.Join(dir, "key"), filepath.Join(dir, "keys")
	put := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().Add(-time.Minute)
		old, young := newParty(t, began), newParty(t, began)
		put(key, old.private)
		put(keys, old.public)
		var warned []string
		warn := func(err error) { warned = append(warned, err.Error()) }
		signer, err := SignerFile(key, warn)
		if err != nil {
			t.Fatal(err)
		}
		trust, err := TrustFile(keys, warn)
		if err != nil {
			t.Fatal(err)
		}
		check := func(when string, want error) {
			t.Helper()
			time.Sleep(rereads) // by the clock of the bubble
			if err := trust.Turn(party{Signer: signer}.stored(time.Now(), web, when), TurnWithin); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
		}
		check("before", nil)
		first := party{Signer: signer}.stored(time.Now(), web, "before")
		put(keys, append(slices.Clone(old.public), young.public...))
		if err := trust.Turn(young.stored(time.Now(), web, "at once"), TurnWithin); err != nil {
			t.Errorf("a key that the file has by now: %v", err) // the signer may have read its own file first
		}
		check("both are trusted", nil)
		put(key, young.private)
		if signer.ID() != old.ID() {
			t.Error("a file is looked at more than once a second")
		}
		check("the new one signs", nil)
		if signer.ID() != young.ID() {
			t.Error("a file is not looked at after a second")
		}
		put(keys, append(slices.Clone(young.public), old.bounded(t, func(k *Key) { k.NotAfter = time.Now() })...))
		check("the old one is retired", nil)
		if err := errors.Join(trust.Turn(first, TurnWithin), signer.OwnTurn(first)); err != nil {
			t.Errorf("a turn signed before the key retired: %v, want nil", err)
		}
		put(keys, []byte("nonsense"))
		check("a broken file", nil)
		if len(warned) != 1 {
			t.Errorf("the broken file is warned of with %q, want one warning at once", warned)
		}
		check("and still", nil)
		if len(warned) != 1 || !strings.Contains(warned[0], "what it held before stays in force") {
			t.Errorf("the broken file is warned of with %q, want one warning in all", warned)
		}
		put(keys, young.bounded(t, func(k *Key) { k.Revoked = time.Now() }))
		check("revoked", ErrRevoked)
	})
}

// TestOnlyKeysAreKeys: the error says what is wrong with a file, and does not repeat a private
// key.
func TestOnlyKeysAreKeys(t *testing.T) {
	p := newParty(t, noon)
	for name, text := range map[string][]byte{
		"nothing": nil, "prose": []byte("hello"), "a private key": p.private, "twice": append(slices.Clone(p.public), p.public...),
		"an unknown header": bytes.Replace(p.public, []byte("Not-Before"), []byte("Not-Bevor"), 1),
		"no time":           bytes.Replace(p.public, []byte("2026-"), []byte("soon-"), 1),
		"junk behind":       append(slices.Clone(p.public), "junk"...),
	} {
		if _, err := NewTrust(text); err == nil || strings.Contains(err.Error(), string(p.private[30:60])) {
			t.Errorf("%s: NewTrust returns %v, want an error without the private key", name, err)
		}
	}
	for name, text := range map[string][]byte{"nothing": nil, "a public key": p.public, "two": append(slices.Clone(p.private), p.private...)} {
		if _, err := NewSigner(text); err == nil || strings.Contains(err.Error(), string(p.private[30:60])) {
			t.Errorf("%s: NewSigner returns %v, want an error without the private key", name, err)
		}
	}
}

// TestWhatIsWrongWithAFileIsSaid: the error tells the user what to put into the file.
func TestWhatIsWrongWithAFileIsSaid(t *testing.T) {
	p := newParty(t, noon)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(curve.Public())
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	for want, text := range map[string][]byte{
		"the signer alone may have":                p.private,
		`it is a "CERTIFICATE"`:                    block("CERTIFICATE", der),
		"it is a *ecdsa.PublicKey, not an Ed25519": block(publicBlock, der),
		"read a public key":                        block(publicBlock, der[:9]),
	} {
		if trust, err := NewTrust(text); err == nil || trust != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	dir := t.TempDir()
	if signer, err := SignerFile(dir+"/none", nil); !errors.Is(err, os.ErrNotExist) || signer != nil {
		t.Errorf("a key that is not there: %v, %v", signer, err)
	}
	if trust, err := TrustFile(dir+"/none", nil); !errors.Is(err, os.ErrNotExist) || trust != nil {
		t.Errorf("trust that is not there: %v, %v", trust, err)
	}
	for size, fits := range map[int]bool{1 << 20: true, 1<<20 + 1: false} {
		if err := os.WriteFile(dir+"/keys", append(slices.Clone(p.public), bytes.Repeat([]byte("\n"), size-len(p.public))...), 0o600); err != nil {
			t.Fatal(err)
		}
		if trust, err := TrustFile(dir+"/keys", nil); (err == nil) != fits || (trust != nil) != fits {
			t.Errorf("a file of %d bytes: %v", size, err)
		}
	}
}

// TestAMessageCountsUpToItsBound: at the latest and the earliest time. Errors distinguish an
// unsigned message from one whose signature does not count, and name a forbidden server header.
func TestAMessageCountsUpToItsBound(t *testing.T) {
	p := newParty(t, noon)
	trust, at := trusting(t, p.public), noon.Add(time.Hour)
	for _, apart := range []time.Duration{TurnWithin, -TurnWithin} {
		m := p.stored(at, web, "{}")
		m.Time = at.Add(apart)
		if err := errors.Join(trust.Turn(m, TurnWithin), p.OwnTurn(m)); err != nil {
			t.Errorf("stored %v after it was signed: %v", apart, err)
		}
	}
	m := p.stored(at, web, "{}")
	m.Header["Nats-Rollup"] = []string{"sub"}
	for _, err := range []error{trust.Turn(m, TurnWithin), p.OwnTurn(m)} {
		if err == nil || !strings.Contains(err.Error(), "Nats-Rollup") {
			t.Errorf("a turn with a header of the server: %v, want an error that names it", err)
		}
	}
	delete(m.Header, "Nats-Rollup")
	for want, wrong := range map[string][2]string{
		"holds no Ed25519 signature": {HeaderSignature, "AAAA"}, "holds no Ed25519": {HeaderSignature, "!"}, "is no sequence": {headerExpect, "06"}, "no sequence": {headerExpect, "x"}, "is no time": {HeaderAt, "noon"},
	} {
		m := p.stored(at, web, "{}")
		m.Header[wrong[0]] = []string{wrong[1]}
		if err := trust.Turn(m, TurnWithin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s %q the turn is trusted with %v, want %q", wrong[0], wrong[1], err, want)
		}
	}
	fresh := p.stored(at, web, "{}")
	fresh.Sequence = 0
	if err := trust.Turn(fresh, TurnWithin); err != nil {
		t.Errorf("one that has no place yet: %v", err)
	}
	delete(m.Header, HeaderSignature)
	for _, err := range []error{trust.Turn(m, TurnWithin), p.OwnTurn(m)} {
		if !errors.Is(err, ErrUnsigned) {
			t.Errorf("a turn without a signature: %v, want ErrUnsigned", err)
		}
	}
}

// TestWhereNoKeysCanBeKept: the error names the directory, and no pair is returned.
func TestWhereNoKeysCanBeKept(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.WriteFile(dir+"/file", nil, 0o600), os.Symlink(dir+"/nowhere", dir+"/link"),
		os.MkdirAll(dir+"/public/x.pub", 0o700), os.MkdirAll(dir+"/turns/turn.key.pub", 0o700), os.MkdirAll(dir+"/outcomes/outcome.key.pub", 0o700),
	); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"/file", "/link", "/public"} {
		if pair, err := ProvidePair(dir+in, "x"); err == nil || pair != (Pair{}) || !strings.Contains(err.Error(), "keep a signing key in "+dir+in) {
			t.Errorf("in %s: %v, %v", in, pair, err)
		}
		if _, err := os.Stat(dir + in + "/x"); err == nil {
			t.Errorf("in %s there is a private key without its public one", in)
		}
	}
	for _, in := range []string{"/turns", "/outcomes"} {
		if all, err := Provide(dir + in); err == nil || all != (Provided{}) || !strings.Contains(err.Error(), "keep signing keys in "+dir+in) {
			t.Errorf("in %s: %v, %v", in, all, err)
		}
	}
	pair, err := ProvidePair(dir+"/new", "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SignerFile(pair.Private, nil); err != nil {
		t.Error(err)
	}
	if _, err := TrustFile(pair.Public, nil); err != nil {
		t.Error(err)
	}
}

// TestProvidedKeysStay: the keys are created once, readable only for their owner.
func TestProvidedKeysStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "signing")
	made, err := Provide(dir)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(made.Turns.Private)
	again, err := Provide(dir)
	after, _ := os.ReadFile(again.Turns.Private)
	if err != nil || made != again || !bytes.Equal(before, after) || len(before) == 0 {
		t.Errorf("the second time it gives %v (%v), another key: %v", again, err, !bytes.Equal(before, after))
	}
	for _, path := range []string{made.Turns.Private, made.Outcomes.Private} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v (%v)", path, info.Mode(), err)
		}
	}
	if _, err := SignerFile(made.Outcomes.Private, nil); err != nil {
		t.Error(err)
	}
	if err := os.Remove(made.Outcomes.Public); err != nil {
		t.Fatal(err)
	}
	if _, err := Provide(dir); err == nil {
		t.Error("a private key without its public one is taken")
	}
}

func BenchmarkSign(b *testing.B) {
	p := newParty(b, noon)
	m := p.stored(noon, web, strings.Repeat("x", 2000))
	for b.Loop() {
		p.Turn(m, 6, noon)
	}
}

func BenchmarkVerify(b *testing.B) {
	p := newParty(b, noon)
	for _, known := range []bool{false, true} {
		b.Run("known="+strconv.FormatBool(known), func(b *testing.B) {
			trust := trusting(b, p.public)
			m := p.stored(noon, web, strings.Repeat("x", 2000))
			for b.Loop() {
				if !known {
					verified = memo{}
				}
				if err := trust.Turn(m, TurnWithin); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestWhatIsSignedStays: services of different versions sign the same parts and use the same
// time limits.
func TestWhatIsSignedStays(t *testing.T) {
	body := sha256.Sum256([]byte("d"))
	want := []byte{}
	for _, part := range []string{"millrace-turn-v1", "s", "6", "t", string(body[:])} {
		want = append(append(want, 0, 0, 0, 0, 0, 0, 0, byte(len(part))), part...)
	}
	if got := statement(turn, events.Message{Subject: "s", Data: []byte("d")}, "6", "t"); !bytes.Equal(got, want) {
		t.Errorf("signed is %q, want %q", got, want)
	}
	if TurnWithin != 2*time.Minute || OutcomeWithin != time.Minute || HintWithin != 10*time.Second {
		t.Errorf("a turn counts for %v, an outcome for %v, a hint for %v", TurnWithin, OutcomeWithin, HintWithin)
	}
}

// TestWhoSignsNothing: without a signer nothing is signed, and every message counts as its own.
func TestWhoSignsNothing(t *testing.T) {
	var none *Signer
	m := events.Message{Subject: web}
	none.Turn(m, 6, noon)
	if err := errors.Join(none.OwnTurn(m), none.OwnOutcome(m)); err != nil || m.Header != nil {
		t.Errorf("%v, with the headers %v", err, m.Header)
	}
}

// TestWhatIsNoPrivateKey gives an error, and each service gets the flags for its keys.
func TestWhatIsNoPrivateKey(t *testing.T) {
	p := newParty(t, noon)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string][]byte{
		"no private key as PKCS #8": pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der[:9]}),
		"not an Ed25519 key":        pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der}),
		"more than one":             append(slices.Clone(p.private), "x\n"...),
		"no PEM block":              p.public,
	} {
		if key, err := ParsePrivate(text); err == nil || key != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	keys := Provided{Turns: Pair{"t", "t.pub"}, Outcomes: Pair{"o", "o.pub"}}
	for service, want := range map[string][]string{
		"reconcilers": {"--turn-signing-key-file=t", "--outcome-keys-file=o.pub"}, "writer": {"--outcome-signing-key-file=o", "--turn-keys-file=t.pub"}, "watcher": nil,
	} {
		if got := keys.Flags(service); !slices.Equal(got, want) {
			t.Errorf("%s has %v", service, got)
		}
	}
}
