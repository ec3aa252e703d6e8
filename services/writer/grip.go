package writer

import (
	"context"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

// grip is a turn in hand.
//
// It is firm while the writer's beats come back in time: nobody else is given the
// turn. When one comes back too late, because the writer was stopped, starved or cut
// off, the turn may have been given to somebody else. That one begins nothing before
// it has said so and has heard itself say it, after what it had heard from others
// ([hand.announced]); and this writer goes on saying that it has the turn. So of
// the two at least one hears the other, and lets go. As soon as this writer has
// listened for long enough, and nobody has said in the meantime that the turn is
// theirs, it goes on where it was: a machine that is slow does not lose what it has
// begun. Whoever has had the turn and is done with it has left an outcome, or
// has died having said that it had it.
type grip struct {
	delivery bus.Delivery // the newest one
	taken    time.Time
	said     bool      // the others are told of it
	first    bool      // nothing behind it in the stream was taken before
	lapses   int       // of the hand, when the grip was last firm
	until    time.Time // when that was, once the hand has had another lapse
	// contested: another writer has said that it has the turn, or may have without
	// having been heard.
	contested bool
}

// doubt is how long after the last beat that came back in time a turn may be in
// doubt before it is let go. The bus keeps for longer than this what it could not
// tell a writer that is stopped.
const doubt = 8 * time.Second

// mourning is for how long a writer that has fallen silent is remembered.
const mourning = 2 * doubt

// standing is what can be said of a grip.
type standing int

const (
	firm  standing = iota
	vague          // it may be somebody else's, and is not to be gone on with
	free           // it may have been somebody else's and done with, but is nobody's now
	gone
)

// standing tells how a turn in hand stands.
func (h *hand) standing(at place) standing {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stands(at)
}

func (h *hand) stands(at place) standing {
	g, now := h.held[at], time.Now()
	quiet := now.Sub(h.confirmed) >= lapse
	switch {
	case g == nil, h.overdue(g, now):
		return gone
	case g.lapses == h.lapses && !quiet:
		return firm
	case g.contested, now.Sub(h.last(g)) >= doubt:
		return gone
	case quiet, h.confirmed.Sub(h.since) < attention:
		return vague
	default:
		return free
	}
}

// last is when the newest beat was said with which a grip was firm.
func (h *hand) last(g *grip) time.Time {
	if g.lapses == h.lapses {
		return h.confirmed
	}
	return g.until
}

// regain makes a grip firm again if it is free.
func (h *hand) regain(at place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stands(at) == free {
		h.held[at].lapses = h.lapses
	}
}

// missed says that others may have said something that was not heard.
func (h *hand) missed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.contest()
}

func (h *hand) contest() {
	h.unheard = time.Now()
	for _, g := range h.held {
		g.contested = true
	}
}

// announced waits until everybody has been told that a claimed turn is ours, and
// tells whether it still is nobody else's: false as well when the context ends.
func (h *hand) announced(ctx context.Context, at place) bool {
	h.mu.Lock()
	after := h.number
	h.mu.Unlock()
	for ctx.Err() == nil && !h.elsewhere(at) {
		h.mu.Lock()
		heard := h.heard
		h.mu.Unlock()
		if heard > after {
			return !h.elsewhere(at)
		}
		wait(ctx, beat/8)
	}
	return false
}
