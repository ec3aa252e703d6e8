package writer

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// place is where a turn is stored.
type place struct {
	controller string
	sequence   uint64
}

// peer is another writer, as it was last heard.
type peer struct {
	at     time.Time
	number uint64 // of that beat
	turns  map[place]bool
}

// hand is the turns that a writer has taken and not answered.
//
// With every beat it says so to the bus, turn by turn, and then to the other
// writers and to itself on the same connection. A beat that comes back proves
// that the bus has heard what went before it: for a while after it was said, no
// turn in hand is delivered to anybody else. A writer that does not hear itself
// has no firm grip, whether it was stopped, starved or cut off ([grip]).
type hand struct {
	id      string
	metrics *metrics
	// sign signs a heartbeat, and proves tells whether another's counts.
	sign   func(text []byte) []byte
	proves func(events.Beat, []byte) bool
	turns  sync.WaitGroup
	taken  chan struct{} // holds a token when a turn has been taken into an empty hand

	mu        sync.Mutex
	held      map[place]*grip
	given     map[string]int       // how many turns of a controller the bus gives at a time
	number    uint64               // of the last beat
	told      bool                 // the last beat said that something is in hand
	saidAt    map[uint64]time.Time // of the beats that have not come back
	heard     uint64               // the newest beat that came back
	confirmed time.Time            // when that was said
	since     time.Time            // since when beats come back in time
	lapses    int                  // how often they did not
	unheard   time.Time            // when others may last have said something that was not heard
	others    map[string]peer
	kept      map[place]*kept   // the turns that others were last said to have, and that were asked for here
	crowded   time.Time         // when a writer was last heard for which there was no room
	company   time.Time         // since when there have been other writers; zero: there is none
	bereaved  time.Time         // when a turn was last let go by a writer that may have begun it
	newest    map[string]uint64 // the newest turn that was taken, by controller
}

func newHand(id string, m *metrics) *hand {
	now := time.Now()
	return &hand{
		id: id, metrics: m, sign: func(text []byte) []byte { return text }, proves: func(events.Beat, []byte) bool { return true },
		taken: make(chan struct{}, 1), held: map[place]*grip{}, given: map[string]int{}, saidAt: map[uint64]time.Time{},
		confirmed: now, since: now, unheard: now, others: map[string]peer{}, newest: map[string]uint64{}, kept: map[place]*kept{},
	}
}

// take takes a delivery in hand and carries on with it in a goroutine of its
// own. A turn that is in hand already is only said to be worked on; its newest
// delivery is the one to answer. The others are told of a fresh turn at once, and
// of one that may be theirs only by [hand.claim].
func (h *hand) take(at place, d bus.Delivery, fresh bool, carry func()) {
	h.mu.Lock()
	g, known := h.held[at]
	if known {
		g.delivery = d
	} else {
		if len(h.held) == 0 {
			h.hurry()
		}
		h.held[at] = &grip{delivery: d, said: fresh, lapses: h.lapses, first: at.sequence > h.newest[at.controller], taken: time.Now()}
		h.newest[at.controller] = max(h.newest[at.controller], at.sequence)
	}
	h.mu.Unlock()
	if known {
		d.Working()
		return
	}
	h.metrics.inHand.WithLabelValues(at.controller).Inc()
	h.turns.Go(func() {
		defer h.metrics.inHand.WithLabelValues(at.controller).Dec()
		carry()
	})
}

// claim tells whether a turn that may be in somebody else's hand is in nobody's;
// then it is ours, and the others are told.
func (h *hand) claim(at place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.theirs(at) {
		return false
	}
	if g, ok := h.held[at]; ok {
		g.said, g.contested, g.lapses = true, false, h.lapses
	}
	return true
}

// elsewhere tells whether a turn may be in somebody else's hand.
func (h *hand) elsewhere(at place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.theirs(at)
}

func (h *hand) theirs(at place) bool {
	now := time.Now()
	if !h.listens(now) {
		return true
	}
	return h.claimed(at, now) && h.believes(at, now)
}

// listens tells whether this writer hears itself, and has for long enough to have heard
// everything that the others have said until a moment ago.
func (h *hand) listens(now time.Time) bool {
	return now.Sub(h.confirmed) < lapse && h.confirmed.Sub(h.since) >= attention
}

// watched tells whether nobody can have begun a turn since a moment without this
// writer knowing: since before then it has heard everything that the others said, if
// late, and none of them has fallen silent, nor has it let go of anything itself.
func (h *hand) watched(since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if !h.listens(now) || h.unheard.Add(attention).After(since) || !h.bereaved.Before(since) {
		return false
	}
	for _, p := range h.others {
		if now.Sub(p.at) >= lapse {
			return false
		}
	}
	return true
}

// alone tells whether a turn was never given to anybody before: nobody else has been
// heard of for longer than it is there, and this writer comes to it for the first time.
// Of one that has waited for longer than that, a desk may have stored a repetition.
func (h *hand) alone(at place, since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.held[at]
	if !ok || !g.first || len(h.others) > 0 || time.Since(since) >= doubt {
		return false
	}
	g.said = true
	return true
}

// abandon says that a turn is let go that has been begun, without an outcome.
func (h *hand) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bereaved = time.Now()
}

// answer lets a turn go, with the answer to its newest delivery.
func (h *hand) answer(at place, how func(bus.Delivery)) {
	h.mu.Lock()
	newest := h.held[at].delivery
	delete(h.held, at)
	h.mu.Unlock()
	how(newest)
}

// keep says of everything in hand that it is worked on, and hears the beats, until
// the context ends.
func (h *hand) keep(ctx context.Context, b bus.Peers, log *slog.Logger) {
	var heard sync.WaitGroup
	defer heard.Wait()
	heard.Go(func() {
		for ctx.Err() == nil {
			err := b.Listen(ctx, events.Writers, h.hear)
			h.missed()
			if err != nil {
				log.Warn("cannot hear the writers", "err", err)
				wait(ctx, beat)
			}
		}
	})
	for ctx.Err() == nil {
		deliveries, said := h.beat()
		for _, d := range deliveries {
			d.Working()
		}
		if err := b.Say(events.Writers, h.sign(said.Encode())); err != nil {
			log.Debug("cannot say what is in hand", "err", err)
		}
		h.pause(ctx)
	}
	// What has been handed back must not seem to be in hand for another while.
	_, said := h.beat()
	if err := b.Say(events.Writers, h.sign(said.Encode())); err != nil {
		log.Debug("cannot say that nothing is in hand", "err", err)
	}
}

// pause is between two beats: twice as long while nothing is in hand, and the others
// know it: a writer may wait to hear that a turn was let go. The grip on a turn that is
// taken in a pause is firm all the same, since a lapse is longer than that, and it is said
// as soon as ever.
func (h *hand) pause(ctx context.Context) {
	wait(ctx, beat)
	h.mu.Lock()
	idle := len(h.held) == 0 && !h.told
	h.mu.Unlock()
	if !idle {
		return
	}
	timer := time.NewTimer(beat)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-h.taken:
	case <-timer.C:
	}
}

func (h *hand) hurry() {
	select {
	case h.taken <- struct{}{}:
	default:
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// beat is the next beat, and what is in hand.
func (h *hand) beat() ([]bus.Delivery, events.Beat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.number++
	h.saidAt[h.number] = now
	delete(h.saidAt, h.number-remembered)
	for id, p := range h.others {
		if now.Sub(p.at) < mourning {
			continue
		}
		if delete(h.others, id); p.at.Add(lapse).After(h.bereaved) {
			h.bereaved = p.at.Add(lapse)
		}
	}
	if len(h.others) == 0 {
		h.company = time.Time{}
	}
	h.forget(now)
	said := events.Beat{Writer: h.id, Number: h.number, Turns: map[string][]uint64{}, Waiting: map[string][]uint64{}}
	h.told = len(h.held) > 0
	all := make([]bus.Delivery, 0, len(h.held))
	for at, g := range h.held {
		all = append(all, g.delivery)
		turns := said.Waiting
		if g.said {
			turns = said.Turns
		}
		turns[at.controller] = append(turns[at.controller], at.sequence)
	}
	for controller, most := range h.given {
		slices.Sort(said.Turns[controller])
		slices.Sort(said.Waiting[controller])
		if len(said.InHand(controller)) >= most {
			said.Full = append(said.Full, controller)
		}
	}
	return all, said
}

// give says how many turns of a controller the bus gives at a time.
func (h *hand) give(controller string, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given[controller] = most
}

// mostOthers bounds the other writers that are remembered. Anybody who may publish can make
// one up.
const mostOthers = 64

// mostClaims bounds the turns of other writers that are remembered to be in flight. Of those beyond only
// what is said of turns that are here is, as of writers for which there is no room.
const mostClaims = 1 << 16

// hear takes in a beat, its own or another's.
func (h *hand) hear(text []byte) {
	b, ok := events.DecodeBeat(text)
	if !ok || b.Writer != h.id && !h.proves(b, text) {
		return
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Writer == h.id {
		h.confirm(b.Number, now)
		return
	}
	before, known := h.others[b.Writer]
	if !known && len(h.others) >= mostOthers {
		h.strange(b, now)
		return
	}
	if known && b.Number <= before.number { // it is a copy
		return
	}
	if h.company.IsZero() {
		h.company = now
	}
	if b.Number != before.number+1 {
		h.contest()
	}
	p, room := peer{at: now, number: b.Number, turns: map[place]bool{}}, mostClaims
	for id, other := range h.others {
		if id != b.Writer {
			room -= len(other.turns)
		}
	}
	for controller, turns := range b.Turns {
		for _, sequence := range turns {
			at := place{controller, sequence}
			if len(p.turns) >= room {
				h.others[b.Writer] = p
				h.strange(b, now)
				return
			}
			p.turns[at] = true
			h.again(at, now)
			if g, ok := h.held[at]; ok {
				g.contested = true
			}
		}
	}
	h.others[b.Writer] = p
}

// hears tells whether another writer has been heard just now.
func (h *hand) hears(writer string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, known := h.others[writer]
	return known && time.Since(p.at) < 2*lapse
}

// confirm counts a lapse if the beat comes back too late.
func (h *hand) confirm(number uint64, now time.Time) {
	said, ok := h.saidAt[number]
	if !ok || !said.After(h.confirmed) {
		return
	}
	delete(h.saidAt, number)
	if now.Sub(h.confirmed) >= lapse {
		for _, g := range h.held {
			g.until = h.last(g)
		}
		h.lapses++
		h.since = said
		h.metrics.lapses.Inc()
	}
	h.heard, h.confirmed = number, said
}

// deaf tells whether beats do not come back.
func (h *hand) deaf() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.confirmed) >= deafness
}

// drain waits until nothing is in hand; after the limit it calls cut, which
// must make whatever is left give up.
func (h *hand) drain(limit time.Duration, cut func()) {
	timer := time.AfterFunc(limit, cut)
	defer timer.Stop()
	h.turns.Wait()
}
