package sign

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"testing"
)

// TestTheMemoKnowsWhatIsValid: the memo knows signatures that were made or verified, and none
// that differ in any part.
func TestTheMemoKnowsWhatIsValid(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	foreign, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	said := []byte("said")
	var signing memo
	signature := signing.sign(private, public, said)
	if !signing.knows(digest(public, said, signature)) {
		t.Error("the memo does not know what was signed here")
	}
	var verifying memo
	if !verifying.verify(public, said, signature) || !verifying.knows(digest(public, said, signature)) {
		t.Error("the memo does not know what was verified")
	}
	other := append([]byte{signature[0] ^ 1}, signature[1:]...)
	for name, valid := range map[string]bool{
		"another key":       signing.verify(foreign, said, signature),
		"another statement": signing.verify(public, []byte("Said"), signature),
		"another signature": signing.verify(public, said, other),
	} {
		if valid {
			t.Errorf("%s counts", name)
		}
	}
}

// TestTheMemoIsBounded: the memo knows the newest generation, and never more than two.
func TestTheMemoIsBounded(t *testing.T) {
	var m memo
	id := func(i int) (id [sha256.Size]byte) {
		binary.BigEndian.PutUint64(id[:], uint64(i))
		return id
	}
	const n = 5*generation + 1
	for i := range n {
		m.add(id(i))
		if held := len(m.young) + len(m.old); held > 2*generation {
			t.Fatalf("%d are held", held)
		}
	}
	for i := n - generation; i < n; i++ {
		if !m.knows(id(i)) {
			t.Fatalf("number %d of %d is forgotten", i, n)
		}
	}
}
