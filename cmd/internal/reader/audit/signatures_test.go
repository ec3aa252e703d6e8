package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestSignaturesAreCounted: verify counts the turns of each signer, and finds turns without a
// signature, with another key's, or with that of a key that was revoked since.
func TestSignaturesAreCounted(t *testing.T) {
	const controller = "c"
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.EnsureController(t.Context(), controller))
	store := func(name string, signer *sign.Signer) {
		t.Helper()
		key := events.Key{Namespace: "ns", Name: name}
		m, err := events.EncodeJSON(events.Turn{Controller: controller, Lane: events.LaneWrite, Key: key}, events.Trace{})
		must(err)
		m.Subject = subject.Turn(controller, events.LaneWrite, key)
		signer.Turn(m, 0, time.Now())
		_, err = b.Store(t.Context(), m, 0)
		must(err)
	}
	store("before", nil)
	ours, err := sign.ProvideFrom(t.TempDir(), time.Now())
	must(err)
	theirs, err := sign.Provide(t.TempDir())
	must(err)
	signer, err := sign.SignerFile(ours.Turns.Private, nil)
	must(err)
	forger, err := sign.SignerFile(theirs.Turns.Private, nil)
	must(err)
	store("ours", signer)
	store("ours too", signer)
	store("unsigned", nil)
	store("theirs", forger)
	o := signatures{turns: ours.Turns.Public}
	all, found, err := o.check(t.Context(), b)
	if err != nil || len(all) != 1 || all[0].Signed != 2 || all[0].Unsigned != 1 || all[0].Bad != 2 || all[0].By[signer.ID()] != 2 {
		t.Errorf("counted %+v (%v)", all, err)
	}
	if len(found) != 2 || found[0].Sequence != 4 || found[1].Sequence != 5 {
		t.Errorf("found %v, want the fourth and the fifth", found)
	}
	text, err := os.ReadFile(ours.Turns.Public)
	must(err)
	o.turns = filepath.Join(t.TempDir(), "revoked")
	head := []byte("-----BEGIN PUBLIC KEY-----\n")
	must(os.WriteFile(o.turns, bytes.Replace(text, head, append(head, "Revoked: 2999-01-01T00:00:00Z\n"...), 1), 0o600))
	if _, found, err = o.check(t.Context(), b); err != nil || len(found) != 3 || !strings.Contains(found[2].What, "revoked") {
		t.Errorf("with a revoked key it finds %v (%v)", found, err)
	}
}
