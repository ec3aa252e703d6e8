package cache

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestObjectSetsAreSortedMaps: after any puts, replacements and removals, a kind and an index
// hold what a map would, in order, and so does each namespace.
func TestObjectSetsAreSortedMaps(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		k, of, want := newKindCache(kinds.Pods.Kind), index[int]{}, map[events.Ref]*cachedObject{}
		for range 400 {
			ref := events.Ref{Kind: kinds.Pods.Name, Namespace: fmt.Sprint("ns", random.IntN(4)), Name: fmt.Sprint("p", random.IntN(30))}
			h := &cachedObject{ref: ref}
			if random.IntN(3) == 0 {
				k.all.Delete(h)
				of.remove(len(ref.Name), h)
				delete(want, ref)
				continue
			}
			k.all.Set(h)
			of.put(len(ref.Name), h)
			want[ref] = h
		}
		sorted := func(some func(*cachedObject) bool) []*cachedObject {
			kept := slices.DeleteFunc(slices.Collect(maps.Values(want)), func(h *cachedObject) bool { return !some(h) })
			slices.SortFunc(kept, func(a, b *cachedObject) int { return a.ref.Compare(b.ref) })
			return kept
		}
		if all := sorted(func(*cachedObject) bool { return true }); !slices.Equal(k.all.Items(), all) {
			t.Fatalf("seed %d: a kind has %d items, and a map holds %d", seed, k.all.Len(), len(all))
		}
		for n := range 5 { // of the last there are none
			space := fmt.Sprint("ns", n)
			if got, want := slices.Collect(k.in(space)), sorted(func(h *cachedObject) bool { return h.ref.Namespace == space }); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %s has %d items, and a map holds %d", seed, space, len(got), len(want))
			}
		}
		for length := range 4 {
			got, want := slices.Collect(of.at(length)), sorted(func(h *cachedObject) bool { return len(h.ref.Name) == length })
			if !slices.Equal(got, want) || of.count(length) != len(want) {
				t.Fatalf("seed %d: under %d there are %d items (%d), and a map holds %d", seed, length, len(got), of.count(length), len(want))
			}
			for _, h := range want {
				of.remove(length, h)
			}
		}
		if len(of) > 0 {
			t.Fatalf("seed %d: of an index that is empty %d keys are left", seed, len(of))
		}
	}
}

// BenchmarkFoldCreates folds the creates of pods in batches of ten, and their deletions, among
// a given number of other pods.
func BenchmarkFoldCreates(b *testing.B) {
	const batch = 10
	for _, pods := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			m, told := New(), 0
			m.Follow(kinds.Pods.Kind)
			tell := func(op events.Op, from, n int) {
				messages := make([]events.Message, n)
				for i := range messages {
					told++
					// Names that are spread over the list, as those of generated pods are.
					pod := aPod(fmt.Sprintf("p%06d", (from+i)*7919%1_000_003), fmt.Sprint("set", (from+i)%500), told)
					messages[i] = delta(kinds.Pods.Kind, op, pod, uint64(told))
				}
				b.StartTimer()
				m.Fold(kinds.Pods.Name, messages)
				b.StopTimer()
			}
			b.StopTimer()
			tell(events.Is, 0, pods)
			b.ResetTimer()
			for i := 0; i < b.N; i += batch {
				b.StopTimer()
				tell(events.Is, pods+i, batch)
				tell(events.Gone, pods+i, batch)
			}
		})
	}
}
