package watcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Before the window of a state stream there are only tombstones (translate.Window). A bus that has
// lost its index has older messages of deleted objects there again, which are stale. A reader of the window
// does not see them, but a writer that asks for one object does. So when a session has begun on a
// window, the watcher reads what lies before it as well, once busier processes have had time to
// start.
const (
	// staleSearchAfter is how long it waits for those.
	staleSearchAfter = 5 * time.Second
	// staleSearchBatch messages are read at a time, with staleSearchPause between.
	staleSearchBatch = 2000
	staleSearchPause = 100 * time.Millisecond
)

// suspectStale has what lies before the window read, once per start and after a session that failed:
// the bus may have been restarted.
func (k *kindWatch) suspectStale() {
	if k.searched {
		return
	}
	k.searched = true
	k.mu.Lock()
	k.staleBefore = k.window.Since()
	k.mu.Unlock()
	signal(k.staleSearch)
}

// searchStale looks for stale objects after each suspectStale, until the context ends.
func (k *kindWatch) searchStale(ctx context.Context, kind kinds.Name) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.staleSearch:
			pause(ctx, staleSearchAfter)
		}
		k.mu.Lock()
		since := k.staleBefore
		k.staleBefore = 0
		k.mu.Unlock()
		if since <= 1 {
			continue
		}
		stale, err := k.searchStaleBefore(ctx, kind, since)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			klog.FromContext(ctx).V(2).Info("Cannot read what ended long ago; it is tried again", "kind", kind, "because", err)
			k.mu.Lock()
			k.staleBefore = since
			k.mu.Unlock()
			signal(k.staleSearch)
		case stale != nil:
			k.report(*stale)
		}
	}
}

// searchStaleBefore looks for a message before since by which a state stream says that an object exists.
func (k *kindWatch) searchStaleBefore(ctx context.Context, kind kinds.Name, since uint64) (stale *events.Damage, err error) {
	stream := subject.StateStream(kind)
	at, err := k.bus.StreamState(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("look at the state of %s: %w", kind, err)
	}
	end, read := at.Last, 0
	at.Last = since - 1
	err = replay(ctx, k.bus, subject.StateStream(kind), 1, at, func(m events.Message) error {
		if read++; read%staleSearchBatch == 0 {
			pause(ctx, staleSearchPause)
		}
		if m.Get(events.HeaderOp) != string(events.Is) {
			return nil
		}
		stale = &events.Damage{Kind: kind, End: end, Hole: events.Hole{
			Reason: fmt.Sprintf("message %d of the state tells of an object, and nothing is there before message %d", m.Sequence, since),
		}}
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return stale, err
}
