package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/notary"
)

// TestTheRecordIsVerified has what was recorded of a Deployment's life signed, and held
// against the key, against the API server's own audit log, and against what a witness saw.
func TestTheRecordIsVerified(t *testing.T) {
	s := here(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		must(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	private, public, err := notary.Generate("notary.test")
	must(t, err)
	key, witness := "--key="+file("key.pub", public), "--witness="+filepath.Join(dir, "witness.json")
	m := s.run(t, "--notary-key="+file("key", private), "--notary-interval=1s")
	r := asker{site: s, nats: m.nats, namespace: "signed"}
	a := s.arena(t, "signed")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))
	clear(t, a)

	proven(t, r, key, witness, "--audit-log="+s.audit)
	older := filepath.Join(dir, "older.millrace")
	if out, err := r.ask(t, "export", older); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	b := s.arena(t, "signed-too")
	must(t, b.Deploy(t.Context(), "web", first, 2))
	until(t, b, clustertest.RolledOut("web", first, 2))
	clear(t, b)
	proven(t, r, key, witness, "--audit-log="+s.audit)

	if out, err := r.ask(t, "verify", key, witness, "--record="+older); err == nil || !strings.Contains(out, "the record went back") {
		t.Errorf("an older record: %v\n%s", err, out)
	}
}

// proven waits until a record is proven: what was stored last waits for its page.
func proven(t *testing.T, r asker, args ...string) {
	t.Helper()
	eventually(t, "the record is proven", func() string {
		out, err := r.ask(t, append([]string{"verify"}, args...)...)
		if err == nil && strings.Contains(out, "exactly those that were signed") {
			return ""
		}
		return fmt.Sprintf("%v\n%s", err, out)
	})
}
