package memlimit

import "runtime/metrics"

// gaps is the memory that the runtime counts against the limit besides heap objects: stacks,
// its own data structures, and fragmentation of the heap. After a burst it can be as much as
// half of the live heap, and the runtime does not give it back.
func gaps() int64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
	}
	metrics.Read(samples)
	var sum int64
	for at, s := range samples {
		switch {
		case s.Value.Kind() != metrics.KindUint64:
			return 0 // a later Go may not have it
		case at == 0:
			sum = int64(s.Value.Uint64())
		default:
			sum -= int64(s.Value.Uint64())
		}
	}
	return sum
}

// roomy raises a limit, so that room bytes can be allocated above the live heap and gaps. It
// adds a twelfth, because the runtime reserves 3 % of the limit, and from 5 % below the limit on
// returns memory to the system that it needs again at once.
func roomy(limit, alive, gaps, room int64) int64 {
	const share = 12
	least := alive + gaps + room
	return max(limit, (least+least/share+step-1)/step*step)
}
