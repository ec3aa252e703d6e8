package notary

// Held is the number of hashes that a tree holds.
func (t *Tree) Held() int { return len(t.edge) }
