package versions

import (
	"fmt"
	"testing"
)

// Recent remembers at least the last half of its limit, and at most its limit.
func TestWhatGenerationsRemember(t *testing.T) {
	t.Parallel()
	r := Recent[int, string]{Limit: 8}
	if _, known := r.Get(1); known {
		t.Error("Get finds a key before any Put")
	}
	for i := range 100 {
		r.Put(i, fmt.Sprint(i))
		known := 0
		for j := range 100 {
			if v, ok := r.Get(j); ok {
				if known++; v != fmt.Sprint(j) {
					t.Fatalf("%d is known as %s", j, v)
				}
			} else if j > i-4 && j <= i {
				t.Fatalf("%d is not known after %d", j, i)
			}
		}
		if known > 8 {
			t.Fatalf("%d are known after %d", known, i)
		}
	}
	r.Put(99, "new")
	if v, _ := r.Get(99); v != "new" {
		t.Errorf("a key that is put again is %s, want new", v)
	}
	for _, i := range []int{99, 97} { // of both generations
		r.Drop(i)
		if _, known := r.Get(i); known {
			t.Errorf("%d is known although it was dropped", i)
		}
	}
}
