package sign

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// FuzzTurn: among all messages only the signed one counts, unchanged.
func FuzzTurn(f *testing.F) {
	p := newParty(f, noon)
	trust := trusting(f, p.public)
	honest := p.stored(noon, web, "{}")
	if err := trust.Turn(honest, TurnWithin); err != nil {
		f.Fatal(err)
	}
	signature := honest.Get(HeaderSignature)
	f.Add(web, []byte("{}"), "6", honest.Get(HeaderAt), true, signature, uint64(7))
	f.Add(web+".x", []byte("{}"), "6", honest.Get(HeaderAt), true, signature, uint64(7))
	f.Add(web, []byte("{ }"), "06", honest.Get(HeaderAt), true, signature, uint64(7))
	f.Add("", []byte(nil), "-1", "", false, "====", uint64(0))
	f.Add("turn", []byte("x"), "18446744073709551615", "9999-12-31T23:59:59Z", true, "AAAA", ^uint64(0))
	f.Fuzz(func(t *testing.T, subject string, body []byte, place, at string, known bool, said string, sequence uint64) {
		key := "f00d"
		if known {
			key = honest.Get(HeaderKey)
		}
		if said == "" {
			said = signature // a seed cannot contain this party's signature
		}
		m := events.Message{Subject: subject, Data: body, Stream: "TURN_c", Sequence: sequence, Time: noon, Header: map[string][]string{
			headerExpect: {place}, HeaderAt: {at}, HeaderKey: {key}, HeaderSignature: {said},
		}}
		same := subject == web && string(body) == "{}" && place == "6" && at == honest.Get(HeaderAt) && known && said == signature && (sequence == 0 || sequence > 6)
		if trusted, own := trust.Turn(m, TurnWithin) == nil, p.OwnTurn(m) == nil; trusted != same || own != same {
			t.Errorf("a turn that was not signed so is trusted (%v, %v): %q %q %q", trusted, own, m.Subject, m.Header, m.Data)
		}
		if trust.Outcome(m) == nil {
			t.Errorf("a turn's signature is taken for an outcome's: %q %q", m.Subject, m.Header)
		}
	})
}

// FuzzTrust: a trust file does not change when it is decoded and encoded again, and an error
// repeats nothing of a private key.
func FuzzTrust(f *testing.F) {
	p := newParty(f, noon)
	f.Add(p.public)
	f.Add(append(bytes.Clone(p.public), p.private...))
	f.Add(p.private)
	f.Add(p.bounded(f, func(k *Key) { k.NotAfter, k.Revoked = noon.AddDate(1, 0, 0), noon }))
	f.Add(p.bounded(f, func(k *Key) { k.Controllers = []string{"a-controller", "b"} }))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\nNot-Before: 0000-01-01T00:00:00+23:59\n\n-----END PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := ParsePrivate(text); err != nil {
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); len(line) > 40 && strings.Contains(err.Error(), line) {
					t.Errorf("the refusal repeats %q: %v", line, err)
				}
			}
		}
		keys, err := ParseTrust(text)
		if err != nil {
			if _, again := NewTrust(text); again == nil || err.Error() == "" {
				t.Errorf("%q is taken for a trust file by one reader, and refused by the other: %v", text, err)
			}
			return
		}
		var written []byte
		for _, k := range keys {
			if y := []int{k.NotBefore.UTC().Year(), k.NotAfter.UTC().Year(), k.Revoked.UTC().Year()}; min(y[0], y[1], y[2]) < 0 || max(y[0], y[1], y[2]) > 9999 {
				return // the zone moves it to a year outside RFC 3339
			}
			block, err := k.PEM()
			if err != nil {
				t.Fatal(err)
			}
			written = append(written, block...)
		}
		again, err := ParseTrust(written)
		if err != nil || len(again) != len(keys) {
			t.Fatalf("%q is read again as %d keys, %v", written, len(again), err)
		}
		for i, k := range keys {
			if a := again[i]; a.ID != k.ID || !a.NotBefore.Equal(k.NotBefore) || !a.NotAfter.Equal(k.NotAfter) || !a.Revoked.Equal(k.Revoked) || !slices.Equal(a.Controllers, k.Controllers) {
				t.Errorf("%+v is read again as %+v", k, a)
			}
		}
	})
}
