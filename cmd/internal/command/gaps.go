package command

import "runtime/metrics"

// gaps is what the runtime counts against the limit beside the objects of the heap:
// stacks, its own books, and the room between objects that others have left. After a
// burst that can be as much as half of what is alive, and it is not given back.
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
			return 0 // a later Go that has it no more
		case at == 0:
			sum = int64(s.Value.Uint64())
		default:
			sum -= int64(s.Value.Uint64())
		}
	}
	return sum
}

// roomy is a limit raised so far that there is room for so much above what is alive,
// whatever lies beside it. The runtime keeps 3 % of the limit for itself, and from 5 %
// below it on gives back to the system what it will need again at once.
func roomy(limit, alive, gaps, room int64) int64 {
	const share = 12
	least := alive + gaps + room
	return max(limit, (least+least/share+step-1)/step*step)
}
