package notary_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// TestAKeyCountsInItsTime: a page signed before its key was valid, after it expired or after it
// was revoked, is a finding that says which; a page signed in between is none.
func TestAKeyCountsInItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		bound func(k *sign.Key, began, end time.Time)
		says  string
	}{
		"counts":             {func(k *sign.Key, began, end time.Time) { k.NotBefore, k.NotAfter, k.Revoked = began, end, end }, ""},
		"does not count yet": {func(k *sign.Key, _, end time.Time) { k.NotBefore = end.Add(time.Hour) }, "counts only from"},
		"has expired":        {func(k *sign.Key, began, _ time.Time) { k.NotAfter = began }, "counted only until"},
		"was revoked":        {func(k *sign.Key, began, _ time.Time) { k.Revoked = began }, "until it was revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, 11, memory.Options{}, func(w *world) {
				public, private, err := ed25519.GenerateKey(rand.Reader)
				w.must(err)
				began := time.Now()
				w.signer, w.known = noteKey(t, private)
				w.notaries = nil
				w.notary()
				time.Sleep(time.Minute) // of virtual time
				w.steps(40)
				k := sign.Key{Public: public}
				c.bound(&k, began, time.Now().Add(time.Minute))
				block, err := k.PEM()
				w.must(err)
				keys := &notary.Keys{}
				w.must(keys.Read("# notary.test\n" + string(block)))
				r := w.export(archive.Selection{}).verify(t, keys)
				if c.says == "" {
					whole(t, r, true)
					return
				}
				for _, f := range r.Findings {
					if strings.Contains(f.What, c.says) {
						return
					}
				}
				t.Errorf("verify does not find that the key %s: %v", name, r.Findings)
			})
		})
	}
}

func noteKey(t *testing.T, private ed25519.PrivateKey) (note.Signer, note.Verifiers) {
	t.Helper()
	text, _, err := note.GenerateKey(bytes.NewReader(private.Seed()), "notary.test")
	if err != nil {
		t.Fatal(err)
	}
	signer, own, err := notary.Signer(text)
	if err != nil {
		t.Fatal(err)
	}
	return signer, note.VerifierList(own)
}
