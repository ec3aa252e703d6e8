package events_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

func object(name string, version int) events.Delta {
	return events.Delta{
		Op: events.Is, Ref: events.Ref{Kind: "pods", Namespace: "default", Name: name},
		UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(version),
	}
}

// TestACensusTellsWhatIsThere, regardless of earlier deltas and their order.
func TestACensusTellsWhatIsThere(t *testing.T) {
	var whole, state events.Tally
	last := map[string]events.Delta{}
	for version := range 2000 {
		d := object(fmt.Sprint("p", rand.IntN(100)), version)
		if rand.IntN(4) == 0 {
			d.Op = events.Gone
		}
		whole.Fold(d)
		whole.Fold(events.Delta{Op: events.Mark})
		last[d.Ref.Name] = d
	}
	there := uint64(0)
	for _, d := range last { // in any order
		state.Fold(d)
		if d.Op == events.Is {
			there++
		}
	}
	want := whole.Census()
	if state.Census() != want || want.Objects != there {
		t.Fatalf("the log gives %v, what is there %v", want, state.Census())
	}
	for name, d := range last {
		if d.Op == events.Gone {
			continue
		}
		for what, other := range map[string]func(*events.Delta){
			"is missing":            func(d *events.Delta) { d.Op = events.Gone },
			"is out of date":        func(d *events.Delta) { d.ResourceVersion = "0" },
			"is another":            func(d *events.Delta) { d.UID = "another" },
			"is of an epoch before": func(d *events.Delta) { d.Epoch++ },
		} {
			wrong := d
			other(&wrong)
			if !state.Holds(d) || state.Holds(wrong) && wrong.Op == events.Is {
				t.Fatalf("%s: held as it is %t, and if it %s %t", name, state.Holds(d), what, state.Holds(wrong))
			}
			state.Fold(wrong)
			if state.Census() == want {
				t.Fatalf("%s %s, and the census is the same", name, what)
			}
			state.Fold(d)
		}
	}
	if state.Census() != want {
		t.Errorf("mended it gives %v, want %v", state.Census(), want)
	}
}

func TestATallyIsSmall(t *testing.T) {
	var before, after runtime.MemStats
	var tally events.Tally
	runtime.GC()
	runtime.ReadMemStats(&before)
	const objects = 10_000
	for i := range objects {
		tally.Fold(object(fmt.Sprint("p", i), i))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if size := int64(after.HeapAlloc) - int64(before.HeapAlloc); size > 1<<20 {
		t.Errorf("the tally of %d objects takes %d bytes", objects, size)
	}
	runtime.KeepAlive(&tally)
}

func BenchmarkTally(b *testing.B) {
	var tally events.Tally
	d := object("web-6d5f7c9b4-x2x7p", 1)
	for b.Loop() {
		tally.Fold(d)
	}
}
