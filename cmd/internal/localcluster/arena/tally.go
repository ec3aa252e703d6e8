package arena

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Tally counts the objects of one kind that fulfil a predicate.
type Tally struct {
	notice
	what      string
	so        func(runtime.Object) bool
	otherwise func(runtime.Object) error // called for objects for which so is false; may be nil
	met       map[types.UID]bool         // the result of so for each existing object
}

// tally begins to count the objects that are created from now on; the watch ends with ctx.
func (a *Arena) tally(ctx context.Context, what string, open opener, so func(runtime.Object) bool) (*Tally, error) {
	return a.begin(ctx, &Tally{notice: newNotice(), what: what, so: so, met: map[types.UID]bool{}}, open)
}

func (a *Arena) begin(ctx context.Context, t *Tally, open opener) (*Tally, error) {
	version, err := a.version(ctx)
	if err != nil {
		return nil, err
	}
	w, err := open(since(version))
	if err != nil {
		return nil, fmt.Errorf("watch whether %s: %w", t.what, err)
	}
	go t.follow(ctx, open, w, version, t.take)
	return t, nil
}

// version is the current resourceVersion of the cluster.
func (a *Arena) version(ctx context.Context) (string, error) {
	list, err := a.client.CoreV1().ConfigMaps(a.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("ask for the version of the state: %w", err)
	}
	return list.ResourceVersion, nil
}

// take applies an event; notice.mu is held.
func (t *Tally) take(event watch.Event) error {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("%w: %v", errBroken, event.Object)
	}
	if event.Type == watch.Deleted {
		delete(t.met, object.GetUID())
		return nil
	}
	so := t.so(event.Object)
	if t.met[object.GetUID()] = so; !so && t.otherwise != nil {
		go t.act(event.Object)
	}
	return nil
}

// act calls otherwise.
func (t *Tally) act(object runtime.Object) {
	if err := t.otherwise(object); err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.fail(err)
	}
}

// Until waits until at least n objects fulfil the predicate, and returns when the change that
// made it true arrived.
func (t *Tally) Until(ctx context.Context, n int) (time.Time, error) {
	return t.until(ctx, Condition{text: fmt.Sprintf("%d %s", n, t.what)}, func() bool { return t.count() >= n })
}

// Gone waits until no object is left.
func (t *Tally) Gone(ctx context.Context) error {
	_, err := t.until(ctx, Condition{text: fmt.Sprintf("none is left of those that were counted: %s", t.what)}, func() bool { return len(t.met) == 0 })
	return err
}

func (t *Tally) count() int {
	n := 0
	for _, so := range t.met {
		if so {
			n++
		}
	}
	return n
}
