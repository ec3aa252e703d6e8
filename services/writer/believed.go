package writer

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// A writer says which turns it has in hand, and others let those be. Where there are keys,
// only a process that has one can say so (proven.go). Where there are none, every process that
// may publish on the topic can, for ever, in the name of a writer that is dead or never was. So
// a claim is believed for a bounded time, and an honest writer lets go before that: then no
// writer has the turn, and it is carried on as after the death of a writer.
const (
	// believed is for how long a turn that comes here is left to others that say, without a
	// pause, that they have it.
	believed = 2 * time.Minute
	// longestHold is for how long a writer that is not alone has a turn in hand. A request
	// that was begun before takes 15 s at most.
	longestHold = believed - 30*time.Second
	// pausing is how long others must not have said that they have a turn until they are
	// believed anew. It is shorter than the bus takes to give a turn again that was let go.
	pausing = ackWait * 3 / 4
)

// kept is a turn that came here and was left to others.
type kept struct {
	since time.Time // since when others have said that they have it
	said  time.Time // when they said so last
	asked time.Time // when it was last asked for here

	stranger time.Time // when one said so for which there is no room
}

// claimed tells whether another writer has just said that it has a turn. Of those for which
// there is no room only what they say of turns that are here is remembered: a turn has to
// be here for long enough to have heard them.
func (h *hand) claimed(at place, now time.Time) bool {
	if k := h.kept[at]; k != nil && now.Sub(k.stranger) < lapse {
		return true
	}
	if g := h.held[at]; g != nil && now.Sub(h.crowded) < lapse && now.Sub(g.taken) < attention {
		return true
	}
	for _, p := range h.others {
		if p.turns[at] && now.Sub(p.at) < lapse {
			return true
		}
	}
	return false
}

// believes tells whether a claim on a turn is to be believed still.
func (h *hand) believes(at place, now time.Time) bool {
	k := h.kept[at]
	if k == nil {
		k = &kept{since: now}
		h.kept[at] = k
	}
	k.asked = now
	return now.Sub(k.since) < believed
}

// again notes that another writer says that it has a turn.
func (h *hand) again(at place, now time.Time) {
	k := h.kept[at]
	switch {
	case k == nil && h.held[at] == nil:
		return
	case k == nil:
		k = &kept{since: now, asked: now}
		h.kept[at] = k
	case now.Sub(k.said) >= pausing:
		k.since = now
	}
	k.said = now
}

// strange hears a writer for which there is no room.
func (h *hand) strange(b events.Beat, now time.Time) {
	h.crowded = now
	h.contest()
	for controller, turns := range b.Turns {
		for _, sequence := range turns {
			at := place{controller, sequence}
			if h.again(at, now); h.kept[at] != nil {
				h.kept[at].stranger = now
			}
		}
	}
}

// forget drops what has not been asked for lately.
func (h *hand) forget(now time.Time) {
	for at, k := range h.kept {
		if now.Sub(k.asked) >= mourning {
			delete(h.kept, at)
		}
	}
}

// overdue tells whether a turn has been in hand for so long that others will soon cease to
// believe that it is.
func (h *hand) overdue(g *grip, now time.Time) bool {
	if h.company.IsZero() {
		return false
	}
	since := g.taken
	if h.company.After(since) {
		since = h.company
	}
	return now.Sub(since) >= longestHold
}
