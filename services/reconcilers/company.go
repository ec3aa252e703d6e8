package reconcilers

import (
	"context"
	"sync"
	"time"
)

// lonely is for how long nobody else must have been there before a replica that had
// company writes its tickets itself: one that is being replaced has a successor soon.
const lonely = 10 * time.Second

// company knows whether there are other replicas. While there are none, nobody could
// take the tickets of the bus but this one, which writes them itself instead
// ([shell.Slips]). Two that do not know of each other as yet both do; what each
// decides is safe beside the other.
type company struct {
	mu      sync.Mutex
	others  bool
	changed chan struct{} // closed, and replaced, when that is otherwise
}

// peers is what is asked of a roster.
type peers interface {
	Others() int
	Changed() <-chan struct{}
}

func newCompany() *company { return &company{changed: make(chan struct{})} }

func (c *company) alone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.others
}

// keep looks who is there until the context ends.
func (c *company) keep(ctx context.Context, there peers) {
	leaving := time.NewTimer(lonely)
	defer leaving.Stop()
	for {
		changed := there.Changed()
		leaving.Stop()
		if there.Others() > 0 {
			c.is(true)
		} else if !c.alone() {
			leaving.Reset(lonely)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-leaving.C:
			c.is(false)
		}
	}
}

func (c *company) is(others bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.others != others {
		c.others = others
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// during has something done while there are others, until the context ends. Its
// context ends when they are gone.
func (c *company) during(ctx context.Context, do func(context.Context)) {
	for ctx.Err() == nil {
		c.mu.Lock()
		others, changed := c.others, c.changed
		c.mu.Unlock()
		if !others {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		session, end := context.WithCancel(ctx)
		go func() {
			defer end()
			select {
			case <-session.Done():
			case <-changed:
			}
		}()
		do(session)
		end()
	}
}
