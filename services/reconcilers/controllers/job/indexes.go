package job

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// span is the range from first to last, both inclusive.
type span struct{ first, last int }

// indexes is a set of numbers, stored as ascending spans that neither overlap nor touch.
type indexes []span

// parseIndexes parses the numbers below limit in the form of a Job's status: "1,3-5,7".
// It skips parts that are no numbers, and stops at the first part that begins at or above limit.
func parseIndexes(text string, limit int) indexes {
	var all indexes
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		if first >= limit {
			break
		}
		last := first
		if isRange {
			to, _, _ = strings.Cut(to, "-")
			if last, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		last = min(last, limit-1)
		if n := len(all); n > 0 && all[n-1].last == first-1 {
			all[n-1].last = last
			continue
		}
		all = append(all, span{first, last})
	}
	return all
}

// String formats the set as the status does: three or more consecutive numbers as a range.
func (x indexes) String() string {
	parts := make([]string, 0, len(x))
	for _, s := range x {
		switch text := strconv.Itoa(s.first); s.last - s.first {
		case 0:
			parts = append(parts, text)
		case 1:
			parts = append(parts, text, strconv.Itoa(s.last))
		default:
			parts = append(parts, text+"-"+strconv.Itoa(s.last))
		}
	}
	return strings.Join(parts, ",")
}

// count returns the size of the set.
func (x indexes) count() int {
	n := 0
	for _, s := range x {
		n += s.last - s.first + 1
	}
	return n
}

func (x indexes) has(index int) bool {
	at, _ := slices.BinarySearchFunc(x, index, func(s span, index int) int { return s.last - index })
	return at < len(x) && x[at].first <= index
}

// with returns the union.
func (x indexes) with(more indexes) indexes {
	all := slices.Concat(x, more)
	slices.SortFunc(all, func(a, b span) int { return a.first - b.first })
	var joined indexes
	for _, s := range all {
		if n := len(joined); n > 0 && s.first <= joined[n-1].last+1 {
			joined[n-1].last = max(joined[n-1].last, s.last)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// each returns the set of numbers given in any order.
func each(numbers []int) indexes {
	single := make(indexes, len(numbers))
	for i, n := range numbers {
		single[i] = span{n, n}
	}
	return indexes(nil).with(single)
}

// common returns the size of the intersection.
func (x indexes) common(y indexes) int {
	n := 0
	for i, j := 0, 0; i < len(x) && j < len(y); {
		if overlap := min(x[i].last, y[j].last) - max(x[i].first, y[j].first) + 1; overlap > 0 {
			n += overlap
		}
		if x[i].last < y[j].last {
			i++
		} else {
			j++
		}
	}
	return n
}

// free returns the first count numbers below limit that are not in the set.
func (x indexes) free(count, limit int) []int {
	var free []int
	next := 0
	for _, s := range append(slices.Clone(x), span{limit, limit}) {
		for ; next < min(s.first, limit) && len(free) < count; next++ {
			free = append(free, next)
		}
		next = max(next, s.last+1)
	}
	return free
}

// indexOf returns the index that a pod was created with; ok is false if it has none.
func indexOf(p *corev1.Pod) (index int, ok bool) {
	text, some := p.Annotations[batchv1.JobCompletionIndexAnnotation]
	if !some {
		return 0, false // the common case: parsing "" would allocate an error for every pod
	}
	index, err := strconv.Atoi(text)
	return index, err == nil && index >= 0
}

// indexesOf returns the indexes of pods, in the order of the pods.
func indexesOf(pods []*corev1.Pod) []int {
	var all []int
	for _, p := range pods {
		if index, ok := indexOf(p); ok {
			all = append(all, index)
		}
	}
	return all
}
