package watcher

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A few kinds resume at a time, and of those that wait the one with the most messages is next.
func TestTheBusiestKindsResumeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q resumeQueue
		var releases []func()
		for range resumeAtOnce {
			releases = append(releases, q.acquire(t.Context(), 1))
		}
		var order []uint64
		for _, messages := range []uint64{7, 900, 30} {
			go func() {
				release := q.acquire(t.Context(), messages)
				order = append(order, messages)
				time.Sleep(time.Millisecond)
				release()
			}()
		}
		synctest.Wait()
		if len(order) > 0 {
			t.Fatalf("%v resume beside %d others", order, resumeAtOnce)
		}
		releases[0]()
		time.Sleep(10 * time.Millisecond)
		if want := []uint64{900, 30, 7}; !slices.Equal(order, want) {
			t.Errorf("the order is %v, want %v", order, want)
		}
		for _, release := range releases[1:] {
			release()
		}
		if q.held != 0 || len(q.waiting) != 0 {
			t.Errorf("%d are held, and %d wait", q.held, len(q.waiting))
		}
	})
}

// A kind waits for a bounded time, and not at all once its watch is to end.
func TestAKindDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q resumeQueue
		for range resumeAtOnce {
			q.acquire(t.Context(), 1)
		}
		began := time.Now()
		q.acquire(t.Context(), 1)()
		if took := time.Since(began); took != resumePatience {
			t.Errorf("acquire waited %v, want %v", took, resumePatience)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		q.acquire(ended, 1)()
		if took := time.Since(began); took != 0 {
			t.Errorf("acquire with an ended context waited %v, want 0", took)
		}
		if q.held != resumeAtOnce || len(q.waiting) != 0 {
			t.Errorf("%d are held, and %d wait", q.held, len(q.waiting))
		}
	})
}
