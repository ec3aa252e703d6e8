package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// setOf returns the numbers whose bits are set, and their text in a status.
func setOf(bits int) (numbers []int, text string) {
	var parts []string
	for first := 0; first < 8; first++ {
		last := first
		for ; bits>>last&1 == 1; last++ {
			numbers = append(numbers, last)
		}
		switch last - first {
		case 0:
			continue
		case 1:
			parts = append(parts, strconv.Itoa(first))
		case 2:
			parts = append(parts, strconv.Itoa(first), strconv.Itoa(first+1))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", first, last-1))
		}
		first = last
	}
	return numbers, strings.Join(parts, ",")
}

// Indexes are sets of numbers: parsing inverts formatting, and all operations agree with those of sets.
func TestIndexesAreSets(t *testing.T) {
	const sets = 1 << 6
	for a := range sets {
		numbers, text := setOf(a)
		x := parseIndexes(text, 6)
		if x.String() != text || each(numbers).String() != text || x.count() != len(numbers) {
			t.Fatalf("%q is read as %v and made as %v", text, x, each(numbers))
		}
		for n := range 8 {
			if x.has(n) != slices.Contains(numbers, n) {
				t.Errorf("%q has %d: %t", text, n, x.has(n))
			}
		}
		for b := range sets {
			_, other := setOf(b)
			y := parseIndexes(other, 6)
			_, union := setOf(a | b)
			both, _ := setOf(a & b)
			if got := x.with(y); got.String() != union {
				t.Errorf("%q with %q is %q", text, other, got)
			}
			if got := x.common(y); got != len(both) {
				t.Errorf("%q and %q have %d in common", text, other, got)
			}
		}
	}
}

// The parser skips parts that are no numbers, and numbers at or above the limit.
func TestIndexesOfOthersAreRead(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 9, ""}, {"x,2", 9, "2"}, {"2-x,4", 9, "4"}, {"1,2,3", 9, "1-3"}, {"0-1,2,4", 9, "0-2,4"}, {"1,3-5,7", 9, "1,3-5,7"},
		{"1,3-5,7", 4, "1,3"}, {"4", 4, ""}, {"3", 4, "3"}, {"5,1", 4, ""}, {"2-9", 4, "2,3"}, {"1,1", 4, "1,1"},
	} {
		if got := parseIndexes(c.text, c.limit); got.String() != c.want {
			t.Errorf("%q below %d is read as %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

func TestWhatAPodSaysOfItsIndex(t *testing.T) {
	for text, want := range map[string]int{"": -1, "0": 0, "12": 12, "-1": -1, "x": -1} {
		p := aPod("a", corev1.PodRunning)
		if text != "" {
			p.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: text}
		}
		index, ok := indexOf(p)
		if ok != (want >= 0) || ok && index != want {
			t.Errorf("%q is the index %d, %t", text, index, ok)
		}
		if place(p) != want {
			t.Errorf("%q comes at %d", text, place(p))
		}
	}
	for text, want := range map[string]int{"": 0, "0": 0, "1": 1, "-1": 0, "x": 0, "2147483647": 2147483647, "2147483648": 0} {
		p := aPod("a", corev1.PodFailed, func(p *corev1.Pod) {
			p.Annotations = map[string]string{batchv1.JobIndexFailureCountAnnotation: text, batchv1.JobIndexIgnoredFailureCountAnnotation: text}
		})
		if failuresOf(p) != want || ignoredOf(p) != want {
			t.Errorf("%q failures are taken for %d and %d", text, failuresOf(p), ignoredOf(p))
		}
	}
}
