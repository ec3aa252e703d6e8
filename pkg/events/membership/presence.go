package membership

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

// The bus notices at once that a process has closed its connection, long before its silence
// shows. So every replica listens on a topic of its own, and the others ask the bus about the
// topic of a replica whose heartbeat is late.

const (
	// late is the age of the last heartbeat after which the next one is overdue.
	late = heartbeat + glance
	// askingFor is the time-out of a question to the bus.
	askingFor = heartbeat
)

// topic is the topic on which a replica listens.
func (r *Membership) topic(id string) string {
	sum := sha256.Sum256([]byte(r.config.Group + "\x00" + id))
	return r.config.Service + "." + hex.EncodeToString(sum[:8])
}

// present listens on this replica's topic until the context ends.
func (r *Membership) present(ctx context.Context) {
	for ctx.Err() == nil {
		_ = r.config.Bus.Listen(ctx, r.topic(r.config.ID), func([]byte) {})
		select {
		case <-ctx.Done():
		case <-time.After(heartbeat):
		}
	}
}

// missAll asks for replicas whose heartbeats are late, until the context ends.
func (r *Membership) missAll(ctx context.Context) {
	for r.awaitGlance(ctx) {
		var asking sync.WaitGroup
		for _, id := range r.overdue() {
			asking.Go(func() { r.miss(ctx, id) })
		}
		asking.Wait()
	}
}

// awaitGlance waits for a glance, and before that until this replica has company: alone, it would wake up
// several times a second for nothing. It returns false when the context has ended.
func (r *Membership) awaitGlance(ctx context.Context) bool {
	r.mu.Lock()
	alone, changed := r.book.alone(time.Now()), r.changed
	r.mu.Unlock()
	if alone {
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	timer := time.NewTimer(glance)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// overdue are the replicas whose heartbeats are late; none if this replica's own is late, too.
func (r *Membership) overdue() (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.book.echo) >= late {
		return nil
	}
	for id, m := range r.book.others {
		if now.Sub(m.heard) >= late {
			ids = append(ids, id)
		}
	}
	return ids
}

// miss removes a replica that no longer listens.
func (r *Membership) miss(ctx context.Context, id string) {
	ctx, done := context.WithTimeout(ctx, askingFor)
	defer done()
	if r.config.Bus.NoListeners(ctx, r.topic(id)) && r.hear(announcement{ID: id, Group: r.config.Group, Bye: true}) {
		r.tell()
	}
}
