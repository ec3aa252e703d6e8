package notary

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Tree is the right edge of a Merkle tree: the hashes that are needed to append to it. The zero
// value is an empty tree.
type Tree struct {
	Size int64
	// edge has the roots of the complete subtrees, from the left, by index.
	edge map[int64]tlog.Hash
}

// maxSize is the largest number of leaves: the indexes of a tree of twice the size would
// overflow.
const maxSize = 1 << 61

// Continue gives the tree with this size and edge; see [Tree.Edge].
//
// Errors: the edge does not fit a tree of this size.
func Continue(size int64, edge []tlog.Hash) (*Tree, error) {
	if size < 0 || size > maxSize {
		return nil, fmt.Errorf("a tree of %d leaves", size)
	}
	indexes := edgeOf(size)
	if len(indexes) != len(edge) {
		return nil, fmt.Errorf("an edge of %d hashes for a tree of %d leaves, which has %d", len(edge), size, len(indexes))
	}
	t := &Tree{Size: size, edge: map[int64]tlog.Hash{}}
	for i, index := range indexes {
		t.edge[index] = edge[i]
	}
	return t, nil
}

// edgeOf are the indexes of the hashes that make up the root of a tree.
func edgeOf(size int64) (indexes []int64) {
	_, _ = tlog.TreeHash(size, tlog.HashReaderFunc(func(wanted []int64) ([]tlog.Hash, error) {
		indexes = append(indexes, wanted...)
		return make([]tlog.Hash, len(wanted)), nil // never an error, so TreeHash has none
	}))
	return indexes
}

func (t *Tree) read(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		h, ok := t.edge[index]
		if !ok {
			return nil, fmt.Errorf("hash %d of a tree of %d leaves is not known", index, t.Size)
		}
		out[i] = h
	}
	return out, nil
}

// Add appends a leaf.
func (t *Tree) Add(leaf tlog.Hash) error {
	hashes, err := tlog.StoredHashesForRecordHash(t.Size, leaf, tlog.HashReaderFunc(t.read))
	if err != nil {
		return fmt.Errorf("add leaf %d: %w", t.Size, err)
	}
	if t.edge == nil {
		t.edge = map[int64]tlog.Hash{}
	}
	for i, h := range hashes {
		t.edge[tlog.StoredHashIndex(0, t.Size)+int64(i)] = h
	}
	t.Size++
	if needed := edgeOf(t.Size); len(t.edge) > 2*len(needed)+64 {
		return t.prune(needed)
	}
	return nil
}

// prune drops the hashes that are no longer needed.
func (t *Tree) prune(needed []int64) error {
	kept, err := t.read(needed)
	if err != nil {
		return err
	}
	t.edge = make(map[int64]tlog.Hash, len(needed))
	for i, index := range needed {
		t.edge[index] = kept[i]
	}
	return nil
}

// Root is the hash of the whole tree.
func (t *Tree) Root() (tlog.Hash, error) { return tlog.TreeHash(t.Size, tlog.HashReaderFunc(t.read)) }

// Edge are the hashes that make up the root, from the left.
func (t *Tree) Edge() ([]tlog.Hash, error) { return t.read(edgeOf(t.Size)) }
