package watcher

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// resumeAtOnce is how many kinds read the end of their logs at the same time.
	resumeAtOnce = 4
	// resumePatience is how long a kind waits for others at most: one whose log the bus cannot
	// deliver must not hold up the rest.
	resumePatience = time.Second
)

// resumeQueue is a semaphore with priorities. A watcher that starts, or takes over the kinds of
// another one, resumes dozens of kinds. Together they would all be late; so a few resume at a time,
// and those with the most messages, which as a rule change most often, come first.
type resumeQueue struct {
	mu      sync.Mutex
	held    int
	waiting []*resumeWaiter
}

type resumeWaiter struct {
	messages uint64
	admitted chan struct{}
}

// acquire waits until a kind may resume, whose log has had this many messages. The caller calls release
// once it has resumed. Acquire returns early when the context ends, and after [resumePatience].
func (q *resumeQueue) acquire(ctx context.Context, messages uint64) (release func()) {
	q.mu.Lock()
	if q.held < resumeAtOnce {
		q.held++
		q.mu.Unlock()
		return q.release
	}
	w := &resumeWaiter{messages: messages, admitted: make(chan struct{})}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()

	patience := time.NewTimer(resumePatience)
	defer patience.Stop()
	select {
	case <-w.admitted:
		return q.release
	case <-patience.C:
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return func() {}
	}
	return q.release // admitted meanwhile
}

func (q *resumeQueue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.held--
		return
	}
	next := slices.MaxFunc(q.waiting, func(a, b *resumeWaiter) int { return cmp.Compare(a.messages, b.messages) })
	q.waiting = slices.DeleteFunc(q.waiting, func(w *resumeWaiter) bool { return w == next })
	close(next.admitted)
}
