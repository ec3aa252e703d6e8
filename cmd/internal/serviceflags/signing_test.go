package serviceflags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/sign"
)

// TestNoServiceActsWithoutKeys: a service that orders writes or opens fences does not start without
// keys or with only some of them; the error says what to do.
func TestNoServiceActsWithoutKeys(t *testing.T) {
	keys, err := sign.Provide(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		options Signing
		acts    bool
		wrong   string
	}{
		{"with both", Signing{key: keys.Turns.Private, keys: keys.Outcomes.Public}, true, ""},
		{"with those of its kind, too", Signing{key: keys.Turns.Private, keys: keys.Outcomes.Public, kin: keys.Turns.Public}, true, ""},
		{"with none", Signing{}, true, "--insecure-unsigned"},
		{"with none, and only looking on", Signing{}, false, ""},
		{"without the writers'", Signing{key: keys.Turns.Private}, true, "--outcome-keys-file"},
		{"without its own", Signing{keys: keys.Outcomes.Public}, true, "--turn-signing-key-file"},
		{"insecure", Signing{unsigned: true}, true, ""},
		{"insecure with keys", Signing{unsigned: true, key: keys.Turns.Private}, true, "leave out"},
		{"the public one as its own", Signing{key: keys.Turns.Public, keys: keys.Outcomes.Public}, true, "--turn-signing-key-file"},
		{"the private one as the writers'", Signing{key: keys.Turns.Private, keys: keys.Outcomes.Private}, true, "the signer alone may have"},
		{"junk", Signing{key: keys.Turns.Private, keys: keys.Outcomes.Public, kin: junk}, true, "--turn-keys-file"},
	} {
		c.options.Own, c.options.Theirs = "turn", "outcome"
		s, err := c.options.Load(c.acts)
		switch {
		case c.wrong == "" && err != nil, c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		case err == nil && (s.signer == nil) != (c.options.key == ""):
			t.Errorf("%s: it signs: %v", c.name, s.signer != nil)
		}
	}
}

// TestKeysOfEverythingAreMadeOnce: reconcilers and writer of a process trust each other, also after a
// restart with the same data.
func TestKeysOfEverythingAreMadeOnce(t *testing.T) {
	data := t.TempDir()
	deciding, writing, err := SigningDir("").Load(data)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := SigningDir(filepath.Join(data, "signing")).Load("")
	if err != nil || again.Sign.ID() != deciding.Sign.ID() {
		t.Errorf("the next process signs with key %s, not %s (%v)", again.Sign.ID(), deciding.Sign.ID(), err)
	}
	if deciding.Outcomes == nil || deciding.Turns == nil || writing.signer == nil || writing.theirs == nil || writing.kin == nil {
		t.Error("a key or a trust file is not used")
	}
}
