package membership

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

// standing orders replicas before the hash does.
type standing int

const (
	ready standing = iota
	unfit
	fresh
)

// announcement is what replicas tell each other.
type announcement struct {
	ID       string   `json:"id"`
	Group    string   `json:"group,omitempty"`
	Standing standing `json:"standing,omitempty"`
	Bye      bool     `json:"bye,omitempty"`
	// Doubtful: it waits for an answer that should have come. It keeps its rank.
	Doubtful bool `json:"doubtful,omitempty"`
}

const (
	// most bounds the other replicas that are taken into account, and those that are
	// remembered because they fell silent. Anybody who may publish can make one up.
	most = 32
	// longest bounds a heartbeat, and longestID the name in it, in bytes.
	longest, longestID = 1024, 256
)

// decode reads a heartbeat; ok is false for anything else.
func decode(data []byte) (b announcement, ok bool) {
	if len(data) > longest || json.Unmarshal(data, &b) != nil || !proper(b.ID) || b.Standing < ready || b.Standing > fresh {
		return announcement{}, false
	}
	return b, true
}

// proper tells whether a text can be the ID of a replica.
func proper(id string) bool {
	return id != "" && len(id) <= longestID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

// member is another replica.
type member struct {
	standing standing
	doubtful bool
	heard    time.Time
}

// book is what a replica knows. It has no clock: the caller that turns its pages says
// what time it is.
type book struct {
	id       string
	standing standing
	doubtful bool          // as it was last said
	echo     time.Time     // when it last heard itself
	patience time.Duration // for how long it can be in touch without hearing itself
	since    time.Time     // since when it has heard itself without a break
	others   map[string]member
	silent   map[string]time.Time // since when others have not been heard

	// seen and shadows are what the ranks follow from: others and silent as of the
	// last time that this replica could trust its ears. known is its own standing, as
	// of the last time that anybody was told of a change.
	seen    map[string]standing
	shadows int
	known   standing
}

func newBook(id string) *book {
	return &book{id: id, standing: fresh, known: fresh, others: map[string]member{}, silent: map[string]time.Time{}}
}

// hear takes in a heartbeat, and tells whether any rank may have changed.
func (b *book) hear(said announcement, now time.Time) (changed bool) {
	switch {
	case said.ID == b.id:
		if !b.inTouch(now) {
			b.since = now
		}
		b.echo, b.patience = now, silence
		b.relax(now)
	case said.Bye:
		delete(b.others, said.ID)
		delete(b.silent, said.ID)
	case !b.admits(said.ID):
		return false
	default:
		b.others[said.ID] = member{standing: said.Standing, doubtful: said.Doubtful, heard: now}
		delete(b.silent, said.ID)
	}
	return b.settle(now)
}

// admits tells whether there is room for a replica.
func (b *book) admits(id string) bool {
	_, known := b.others[id]
	return known || len(b.others) < most
}

// turn is to be called with every heartbeat.
func (b *book) turn(now time.Time, fit bool) (changed bool) {
	if b.trusts(now) {
		if b.standing = unfit; fit {
			b.standing = ready
		}
		for id, m := range b.others {
			if now.Sub(m.heard) >= silence {
				delete(b.others, id)
				if len(b.silent) < most {
					b.silent[id] = now
				}
			}
		}
		maps.DeleteFunc(b.silent, func(_ string, since time.Time) bool { return now.Sub(since) >= bus.Lingering })
	}
	b.relax(now)
	return b.settle(now)
}

// relax expects heartbeats as seldom as one that is alone says them. When it is alone
// no more, that lasts until it hears itself again.
func (b *book) relax(now time.Time) {
	if b.alone(now) {
		b.patience = solitude + silence
	}
}

// inTouch: it hears itself, so others hear it, and it would hear them.
func (b *book) inTouch(now time.Time) bool {
	return !b.echo.IsZero() && now.Sub(b.echo) < b.patience
}

// alone: it knows that no other replica is there, so none waits for its heartbeats, and
// there is none whose silence it could miss.
func (b *book) alone(now time.Time) bool {
	return b.standing != fresh && len(b.others) == 0 && len(b.silent) == 0 && b.trusts(now)
}

// trusts: it has heard for long enough to know who is not there.
func (b *book) trusts(now time.Time) bool {
	return b.inTouch(now) && now.Sub(b.since) >= silence
}

// settle takes over what is known into what the ranks follow from.
func (b *book) settle(now time.Time) (changed bool) {
	if b.trusts(now) && (b.shadows != len(b.silent) || !b.sees()) {
		b.seen, b.shadows, changed = map[string]standing{}, len(b.silent), true
		for id, m := range b.others {
			b.seen[id] = m.standing
		}
	}
	changed = changed || b.known != b.standing
	b.known = b.standing
	return changed
}

// sees tells whether the ranks follow from those that are there.
func (b *book) sees() bool {
	for id, m := range b.others {
		if s, ok := b.seen[id]; !ok || s != m.standing {
			return false
		}
	}
	return len(b.seen) == len(b.others)
}

// first is the replica to which a piece of work falls.
func (b *book) first(work string) (id string) {
	id, best := b.id, b.standing
	for other, s := range b.seen {
		if cmp.Or(cmp.Compare(s, best), cmp.Compare(weight(work, other), weight(work, id)), strings.Compare(other, id)) < 0 {
			id, best = other, s
		}
	}
	return id
}

// rank is the number of replicas that come before this one for a piece of work.
func (b *book) rank(work string) (rank int) {
	mine := weight(work, b.id)
	for id, s := range b.seen {
		if cmp.Or(cmp.Compare(s, b.standing), cmp.Compare(weight(work, id), mine), strings.Compare(id, b.id)) < 0 {
			rank++
		}
	}
	return rank
}

// best is the rank of the first replica while none is silent.
const best = 4

// level is the rank in which to ask for deliveries. Requests of a silent replica
// may still be open, at whatever rank it had: so while there is one, everybody
// else asks one rank better than otherwise.
func (b *book) level(work string) int {
	if b.standing == fresh {
		return bus.LastRank
	}
	return min(max(best-b.shadows, 0)+b.rank(work), bus.LastRank)
}

func (b *book) fitOthers() (n int) {
	for _, s := range b.seen {
		if s == ready {
			n++
		}
	}
	return n
}

// sureOthers tells whether another replica is fit and gets its answers. A replica that
// does not hear itself has not heard either that the others do not.
func (b *book) sureOthers(now time.Time) bool {
	if !b.trusts(now) {
		return false
	}
	for _, m := range b.others {
		if m.standing == ready && !m.doubtful {
			return true
		}
	}
	return false
}

// weight is the same number at every replica; the lowest comes first.
func weight(work, id string) uint64 {
	sum := sha256.Sum256([]byte(work + "\x00" + id))
	return binary.BigEndian.Uint64(sum[:])
}
