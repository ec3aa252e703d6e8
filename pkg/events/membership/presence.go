package membership

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

// The bus knows at once that the connection of a process is closed, long before its silence
// tells. So every replica listens on a topic of its own, and one whose heartbeat is late is
// looked for there.

const (
	// late is when a heartbeat is: the next one should have been heard, and some time ago.
	late = heartbeat + glance
	// askingFor bounds a question to the bus.
	askingFor = heartbeat
)

// topic is where a replica of the service listens.
func (r *Membership) topic(id string) string {
	sum := sha256.Sum256([]byte(r.config.Group + "\x00" + id))
	return r.config.Service + "." + hex.EncodeToString(sum[:8])
}

// present listens until the context ends.
func (r *Membership) present(ctx context.Context) {
	for ctx.Err() == nil {
		_ = r.config.Bus.Listen(ctx, r.topic(r.config.ID), func([]byte) {})
		select {
		case <-ctx.Done():
		case <-time.After(heartbeat):
		}
	}
}

// missAll looks for replicas whose heartbeats are late until the context ends.
func (r *Membership) missAll(ctx context.Context) {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var asking sync.WaitGroup
		for _, id := range r.overdue() {
			asking.Go(func() { r.miss(ctx, id) })
		}
		asking.Wait()
	}
}

// overdue are the replicas whose heartbeats are late, where this one hears its own.
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

// miss leaves a replica out that does not listen any more.
func (r *Membership) miss(ctx context.Context, id string) {
	ctx, done := context.WithTimeout(ctx, askingFor)
	defer done()
	if r.config.Bus.Absent(ctx, r.topic(id)) && r.hear(announcement{ID: id, Group: r.config.Group, Bye: true}) {
		r.tell()
	}
}
