package shell

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestAShelfIsASortedMap: whatever is put in, replaced and taken out, in batches of any
// size, a shelf holds what a map would, in order, and so does a kind by namespace.
func TestAShelfIsASortedMap(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var s shelf
		spaces, want := newByNamespace(), map[events.Ref]*held{}
		for range 20 {
			for range random.IntN(40) {
				ref := events.Ref{Kind: kinds.Pods.Name, Namespace: fmt.Sprint("ns", random.IntN(4)), Name: fmt.Sprint("p", random.IntN(30))}
				h := &held{ref: ref}
				if random.IntN(3) == 0 {
					h = nil
				}
				s.stage(ref, h)
				spaces.stage(ref.Namespace, ref, h)
				if want[ref] = h; h == nil {
					delete(want, ref)
				}
			}
			s.settle()
			spaces.settle()
			sorted := slices.SortedFunc(maps.Values(want), func(a, b *held) int { return compareRefs(a.ref, b.ref) })
			if !slices.Equal(s.items, sorted) {
				t.Fatalf("seed %d: a shelf of %d items is not the %d that a map holds, sorted", seed, len(s.items), len(sorted))
			}
			if all := slices.Collect(spaces.all()); !slices.Equal(all, sorted) {
				t.Fatalf("seed %d: by namespace there are %d items, and a map holds %d", seed, len(all), len(sorted))
			}
		}
	}
}

// BenchmarkFoldBirths folds the creates of pods in batches of ten, and their deletes, where
// so many others are.
func BenchmarkFoldBirths(b *testing.B) {
	const batch = 10
	for _, pods := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			m, told := NewMemory(), 0
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
