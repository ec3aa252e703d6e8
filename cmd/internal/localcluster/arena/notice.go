package arena

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// errBroken: the watch has ended for good, so that waiting would never end.
var errBroken = errors.New("the watch ended")

// notice wakes waiting callers when a watch has received an event.
type notice struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	last    time.Time     // when the last change arrived
	broken  error
}

func newNotice() notice { return notice{changed: make(chan struct{})} }

// opener opens a watch.
type opener func(metav1.ListOptions) (watch.Interface, error)

// since are the options of a watch from a version. Bookmarks advance the version while
// the watched objects do not change, so that the watch can be reopened there although other
// objects have changed much.
func since(version string) metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}
}

// follow passes on every event. The API server ends a watch whose client falls behind, as
// happens on a busy machine: follow reopens it where it ended, so that it misses no
// event.
func (c *notice) follow(ctx context.Context, open opener, w watch.Interface, version string, take func(watch.Event) error) {
	for {
		for event := range w.ResultChan() {
			if event.Type != watch.Bookmark {
				c.heard(event, time.Now(), take)
			}
			if object, err := meta.Accessor(event.Object); err == nil {
				version = object.GetResourceVersion()
			}
		}
		again, err := reopen(ctx, open, version)
		if err != nil || ctx.Err() != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fail(errors.Join(errBroken, err))
			return
		}
		w = again
	}
}

// reopen opens a watch where it ended. It retries if the API server is overloaded for a
// moment, but not if the version has expired.
func reopen(ctx context.Context, open opener, version string) (watch.Interface, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		w, err := open(since(version))
		if err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || Rest(ctx, 100*time.Millisecond) != nil {
			return w, err
		}
	}
}

// heard passes on an event under the lock, and wakes waiting callers.
func (c *notice) heard(event watch.Event, at time.Time, take func(watch.Event) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := take(event); err != nil {
		c.fail(err)
		return
	}
	c.last = at
	c.wake()
}

func (c *notice) fail(err error) {
	if c.broken == nil {
		c.broken = err
	}
	c.wake()
}

func (c *notice) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// until waits until holds, called under the lock, is true, and returns when the change that made
// it true arrived.
func (c *notice) until(ctx context.Context, what fmt.Stringer, holds func() bool) (time.Time, error) {
	for {
		c.mu.Lock()
		so, at, changed, broken := holds(), c.last, c.changed, c.broken
		c.mu.Unlock()
		if so {
			return at, nil
		}
		if broken != nil {
			return time.Time{}, fmt.Errorf("wait until %v: %w", what, broken)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait until %v: %w", what, ctx.Err())
		}
	}
}
