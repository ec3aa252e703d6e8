package reconcilers

import (
	"context"
	"maps"
	"sync"
)

// leases are the leased controllers, and whether a writer holds the Lease of each.
type leases struct {
	mu      sync.Mutex
	held    map[string]bool
	changed chan struct{} // closed and replaced when held changes
}

// follow adds a controller whose Lease no writer holds yet, and returns what is to be told of each
// change.
func (l *leases) follow(controller string) func(held bool) {
	l.set(controller, false)
	return func(held bool) { l.set(controller, held) }
}

func (l *leases) set(controller string, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held, l.changed = map[string]bool{}, make(chan struct{})
	}
	l.held[controller] = held
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *leases) get() (held map[string]bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.held), l.changed
}

// WatchLeases calls tell with the leased controllers, and whether a writer holds the Lease of each, at
// once and at every change, until the context ends.
func (s *Service) WatchLeases(ctx context.Context, tell func(held map[string]bool)) {
	for {
		held, changed := s.leases.get()
		tell(held)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
