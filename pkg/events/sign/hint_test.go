package sign

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestAHintCountsForAWhile: a hint counts unchanged, on its topic and for some seconds, and
// nothing else does.
func TestAHintCountsForAWhile(t *testing.T) {
	p, other := newParty(t, noon), newParty(t, noon)
	trust, at := trusting(t, p.public), noon.Add(time.Hour)
	text := []byte(`{"writer":"a","number":7}`)
	signed := p.Hint("writers", text, at)
	if !bytes.HasPrefix(signed, []byte(`{"writer":"a","number":7,"signed":{`)) {
		t.Errorf("the signed hint is %s, want one that an older reader can read", signed)
	}
	for _, now := range []time.Time{at, at.Add(HintWithin), at.Add(-HintWithin)} {
		if err := errors.Join(trust.Hint("writers", signed, now), p.OwnHint("writers", signed, now)); err != nil {
			t.Errorf("%v after it was signed: %v", now.Sub(at), err)
		}
	}
	replace := func(old, now string) []byte { return bytes.Replace(signed, []byte(old), []byte(now), 1) }
	for name, c := range map[string]struct {
		text []byte
		now  time.Time
		want error
	}{
		"another number":   {replace(`:7`, `:8`), at, ErrUnproven},
		"one member more":  {replace(`,"signed"`, `,"full":[],"signed"`), at, ErrUnproven},
		"the time changed": {replace(at.Format("15:04"), at.Add(time.Minute).Format("15:04")), at.Add(time.Minute), ErrUnproven},
		"a bit more":       {append(bytes.Clone(signed), ' '), at, ErrUnproven},

		"none":                {text, at, ErrUnsigned},
		"another's":           {other.Hint("writers", text, at), at, ErrUnproven},
		"another's, our name": {bytes.Replace(other.Hint("writers", text, at), []byte(other.ID()), []byte(p.ID()), 1), at, ErrUnproven},
		"later":               {signed, at.Add(HintWithin + 1), ErrUnproven},
		"earlier":             {signed, at.Add(-HintWithin - 1), ErrUnproven},
		"an outcome's":        {append(append(bytes.TrimSuffix(bytes.Clone(text), hintEnds), hintBegins...), "{}}"...), at, ErrUnproven},
	} {
		for range 2 { // invalid signatures are remembered
			if err := trust.Hint("writers", c.text, c.now); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if err := p.OwnHint("writers", c.text, c.now); !errors.Is(err, c.want) {
			t.Errorf("%s, to the signer: %v, want %v", name, err, c.want)
		}
	}
	if err := trust.Hint("readers", signed, at); !errors.Is(err, ErrUnproven) {
		t.Errorf("on another topic: %v", err)
	}
	revoked := trusting(t, p.bounded(t, func(k *Key) { k.Revoked = at }))
	if err := revoked.Hint("writers", signed, at); !errors.Is(err, ErrRevoked) {
		t.Errorf("a hint of a revoked key: %v, want ErrRevoked", err)
	}
	if err := trust.Hint("writers", text, noon.Add(-time.Second)); err != nil {
		t.Errorf("a hint before anything had to be signed: %v, want nil", err)
	}
	var none *Signer
	var all *Trust
	if got := none.Hint("writers", text, at); !bytes.Equal(got, text) || all.Hint("writers", text, at) != nil || none.OwnHint("writers", text, at) != nil {
		t.Error("without keys a hint is signed, or has to be")
	}
}

// FuzzHint: among all texts only the signed one counts.
func FuzzHint(f *testing.F) {
	p := newParty(f, noon)
	trust := trusting(f, p.public)
	signed := p.Hint("writers", []byte(`{"writer":"a"}`), noon)
	f.Add([]byte(`{}`), 0)
	f.Add([]byte(`,"signed":{"key":"","at":"","signature":""}}`), 3)
	f.Add(bytes.Clone(signed), len(signed))
	f.Add([]byte(" }}"), len(signed)-2)
	f.Fuzz(func(t *testing.T, text []byte, kept int) {
		text = append(bytes.Clone(signed[:max(0, min(kept, len(signed)))]), text...)
		same := bytes.Equal(text, signed)
		if trusted, own := trust.Hint("writers", text, noon) == nil, p.OwnHint("writers", text, noon) == nil; trusted && !same || own != trusted {
			t.Errorf("a hint that was not signed so is trusted (%v, %v): %q", trusted, own, text)
		}
	})
}
