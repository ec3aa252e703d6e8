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

// standing orders replicas; only replicas of equal standing are ordered by the hash.
type standing int

const (
	ready standing = iota
	unfit
	fresh
)

// announcement is a heartbeat.
type announcement struct {
	ID       string   `json:"id"`
	Group    string   `json:"group,omitempty"`
	Standing standing `json:"standing,omitempty"`
	Bye      bool     `json:"bye,omitempty"`
	// Doubtful: the replica waits for an overdue answer ([contact]). It keeps its rank.
	Doubtful bool `json:"doubtful,omitempty"`
}

const (
	// most limits the other replicas that count, and the silent ones that are remembered,
	// because any process with the right to publish can invent replicas.
	most = 32
	// longest limits a heartbeat, and longestID the ID in it, in bytes.
	longest, longestID = 1024, 256
)

// decode reads a heartbeat; ok is false for anything else.
func decode(data []byte) (b announcement, ok bool) {
	if len(data) > longest || json.Unmarshal(data, &b) != nil || !proper(b.ID) || b.Standing < ready || b.Standing > fresh {
		return announcement{}, false
	}
	return b, true
}

// proper reports whether a text is a valid replica ID.
func proper(id string) bool {
	return id != "" && len(id) <= longestID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

// member is another replica.
type member struct {
	standing standing
	doubtful bool
	heard    time.Time
}

// book is one replica's knowledge of the others. It has no clock: the caller passes the time.
type book struct {
	id       string
	standing standing
	doubtful bool          // as published in the last heartbeat
	echo     time.Time     // when it last heard its own heartbeat
	patience time.Duration // how long it counts as in touch without hearing itself
	since    time.Time     // start of the unbroken series of its own heartbeats
	others   map[string]member
	silent   map[string]time.Time // replicas that fell silent, and since when

	// seen and shadows are the inputs of the ranks: others and the number of silent replicas, as
	// of the last moment at which this replica trusted what it hears. known is its own standing
	// when Changed was last signalled.
	seen    map[string]standing
	shadows int
	known   standing
}

func newBook(id string) *book {
	return &book{id: id, standing: fresh, known: fresh, others: map[string]member{}, silent: map[string]time.Time{}}
}

// hear applies a heartbeat, and reports whether any rank may have changed.
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

// admits reports whether there is room for another replica.
func (b *book) admits(id string) bool {
	_, known := b.others[id]
	return known || len(b.others) < most
}

// turn must be called with every heartbeat. It drops silent replicas.
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

// relax extends patience while this replica is alone, because it then sends heartbeats seldom.
// When another replica appears, the longer patience lasts until this one hears itself again.
func (b *book) relax(now time.Time) {
	if b.alone(now) {
		b.patience = solitude + silence
	}
}

// inTouch: this replica hears its own heartbeats, so others hear it, and it would hear them.
func (b *book) inTouch(now time.Time) bool {
	return !b.echo.IsZero() && now.Sub(b.echo) < b.patience
}

// alone: this replica knows that there is no other, so no other waits for its heartbeats, and it
// can miss no silence.
func (b *book) alone(now time.Time) bool {
	return b.standing != fresh && len(b.others) == 0 && len(b.silent) == 0 && b.trusts(now)
}

// trusts: this replica has listened long enough to know which replicas are missing.
func (b *book) trusts(now time.Time) bool {
	return b.inTouch(now) && now.Sub(b.since) >= silence
}

// settle updates the inputs of the ranks, if this replica trusts what it hears.
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

// sees reports whether seen equals the current others.
func (b *book) sees() bool {
	for id, m := range b.others {
		if s, ok := b.seen[id]; !ok || s != m.standing {
			return false
		}
	}
	return len(b.seen) == len(b.others)
}

// first is the replica that owns a piece of work.
func (b *book) first(work string) (id string) {
	id, best := b.id, b.standing
	for other, s := range b.seen {
		if cmp.Or(cmp.Compare(s, best), cmp.Compare(weight(work, other), weight(work, id)), strings.Compare(other, id)) < 0 {
			id, best = other, s
		}
	}
	return id
}

// rank is the number of replicas that rank before this one for a piece of work.
func (b *book) rank(work string) (rank int) {
	mine := weight(work, b.id)
	for id, s := range b.seen {
		if cmp.Or(cmp.Compare(s, b.standing), cmp.Compare(weight(work, id), mine), strings.Compare(id, b.id)) < 0 {
			rank++
		}
	}
	return rank
}

// best is the level of the first replica while no replica is silent.
const best = 4

// level is the rank with which to request deliveries ([bus.Work]). Requests of a silent replica
// may still be open, at any rank that it had: so for each silent replica, the live ones request
// one rank better than otherwise.
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

// sureOthers reports whether another replica is fit and gets its answers. A replica that does not
// hear itself would also miss that the others are in doubt.
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

// weight is the same number on every replica; the lowest ranks first.
func weight(work, id string) uint64 {
	sum := sha256.Sum256([]byte(work + "\x00" + id))
	return binary.BigEndian.Uint64(sum[:])
}
