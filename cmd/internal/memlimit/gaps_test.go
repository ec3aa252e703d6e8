package memlimit

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// TestGapsLeaveRoom: on a heap that a burst has fragmented, the collector does not run
// continuously to keep a limit that it cannot keep.
func TestGapsLeaveRoom(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the limit alone decides
	const size, many, keep = 1 << 10, 160 << 10, 8
	var kept [][]byte
	for at := range many {
		if object := make([]byte, size); at%keep == 0 {
			kept = append(kept, object)
		}
	}
	runtime.GC()
	alive := metric("/gc/heap/live:bytes")
	between := gaps()
	if between < size*many/2 {
		t.Fatalf("%d MB lie between %d MB of objects: too little to show anything", between>>20, alive>>20)
	}
	room := func(limit int64) int64 {
		debug.SetMemoryLimit(limit)
		runtime.GC()
		return metric("/gc/heap/goal:bytes") - metric("/gc/heap/live:bytes")
	}
	plain := alive + leastRoom + beside
	if got := room(plain); got > leastRoom/2 {
		t.Fatalf("the gaps fit into the limit of %d MB, which leaves %d MB: the test shows nothing", plain>>20, got>>20)
	}
	if got := room(roomy(plain, alive, gaps(), leastRoom)); got < leastRoom-4<<20 || got > 2*leastRoom {
		t.Errorf("there is room for %d MB, want %d MB", got>>20, leastRoom>>20)
	}
	runtime.KeepAlive(kept)
}

func metric(name string) int64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
