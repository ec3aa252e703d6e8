package credentials

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/pkg/events/notary"
)

// TestNotaryKeysAreMadeOnce: a restarted control plane in containers signs with its earlier key, and
// verifiers get only the public part.
func TestNotaryKeysAreMadeOnce(t *testing.T) {
	private, public := t.TempDir(), t.TempDir()
	read := func(dir, name string) []byte {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var was []byte
	for range 2 {
		if err := WriteNotaryKeys(private, public); err != nil {
			t.Fatal(err)
		}
		key := read(private, "notary.key")
		if was != nil && !bytes.Equal(was, key) {
			t.Error("the second start made another key")
		}
		was = key
	}
	_, own, err := notary.Signer(string(was))
	if err != nil {
		t.Fatal(err)
	}
	given := &notary.Keys{}
	err = given.Read(string(read(public, "notary.key.pub")))
	if v, unknown := given.Verifier(own.Name(), own.KeyHash()); err != nil || unknown != nil || v.KeyHash() != own.KeyHash() {
		t.Errorf("the public part is not that of the key: %v, %v", err, unknown)
	}
	if names, _ := filepath.Glob(filepath.Join(public, "*")); len(names) != 1 {
		t.Errorf("verifiers are given %v", names)
	}
}
