package notary

// Held is how many hashes a tree holds.
func (t *Tree) Held() int { return len(t.edge) }
