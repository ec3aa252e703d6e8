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

// errBroken says that nothing is seen any more; waiting would be for ever.
var errBroken = errors.New("the watch ended")

// notice tells those who wait that watches brought something.
type notice struct {
	mu      sync.Mutex
	changed chan struct{} // closed and made anew at each change
	last    time.Time     // when the last change arrived
	broken  error
}

func newNotice() notice { return notice{changed: make(chan struct{})} }

// opener opens a watch.
type opener func(metav1.ListOptions) (watch.Interface, error)

// since is what is asked for of a watch. Bookmarks say how far it has come where nothing
// happens, so that it can be opened again there when much has happened elsewhere.
func since(version string) metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}
}

// follow takes every event. The API server ends a watch whose reader falls behind
// for a moment, as happens on a busy machine: it is opened again where it ended, and
// nothing is missed.
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

// reopen opens a watch where it ended. An API server that has too much to do may refuse
// for a moment; what it has forgotten stays forgotten.
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

// heard hands an event on, under the lock, and tells those who wait.
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

// until waits until something holds, which is asked under the lock, and says when the
// change arrived that made it so.
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
