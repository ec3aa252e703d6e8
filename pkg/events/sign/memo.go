package sign

import (
	"crypto/ed25519"
	"crypto/sha256"
	"sync"
)

// verified are the signatures that this process has made or found valid. The validity of a
// signature depends on nothing else, so one memo serves every Trust and every Signer: if
// reconcilers and writers share a process, each signature is computed once and never verified;
// otherwise each is verified once, however often it is read. The validity of the key is checked
// every time.
var verified memo

// memo remembers valid signatures: at least the newest ones, as many as generation. It is safe
// for concurrent use.
type memo struct {
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]struct{}
}

// generation is the minimum number of remembered signatures; about half a megabyte.
const generation = 8192

// verify reports whether a statement's signature is valid.
func (m *memo) verify(public ed25519.PublicKey, said, signature []byte) bool {
	id := digest(public, said, signature)
	if m.knows(id) {
		return true
	}
	if !ed25519.Verify(public, said, signature) {
		return false
	}
	m.add(id)
	return true
}

// sign signs a statement.
func (m *memo) sign(key ed25519.PrivateKey, public ed25519.PublicKey, said []byte) []byte {
	signature := ed25519.Sign(key, said)
	m.add(digest(public, said, signature))
	return signature
}

func (m *memo) add(id [sha256.Size]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.young) >= generation || m.young == nil {
		m.old, m.young = m.young, map[[sha256.Size]byte]struct{}{}
	}
	m.young[id] = struct{}{}
}

func (m *memo) knows(id [sha256.Size]byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, young := m.young[id]
	_, old := m.old[id]
	return young || old
}

// digest identifies a signature and everything that its validity depends on. The first two parts
// have fixed lengths, so different triples give different bytes.
func digest(public ed25519.PublicKey, said, signature []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(public)
	h.Write(signature)
	h.Write(said)
	return [sha256.Size]byte(h.Sum(nil))
}
