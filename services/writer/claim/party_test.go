package claim

import (
	"time"

	"github.com/millrace/millrace/pkg/events/report"
)

// party is a writer's claims with the current time.
type party struct{ *Claims }

func newParty(id string) party { return party{New(id, time.Now())} }

func (p party) take(at Place, fresh bool)         { p.Take(at, fresh, time.Now()) }
func (p party) claim(at Place) bool               { return p.Claim(at, time.Now()) }
func (p party) elsewhere(at Place) bool           { return p.Elsewhere(at, time.Now()) }
func (p party) watched(since time.Time) bool      { return p.NoneBegunSince(since, time.Now()) }
func (p party) alone(at Place, of time.Time) bool { return p.NeverDelivered(at, of, time.Now()) }
func (p party) standing(at Place) Status          { return p.Status(at, time.Now()) }
func (p party) regain(at Place)                   { p.HoldAgain(at, time.Now()) }
func (p party) giveUp()                           { p.GiveUp(time.Now()) }
func (p party) missed()                           { p.Missed(time.Now()) }
func (p party) heartbeat() report.Heartbeat       { return p.Heartbeat(time.Now()) }
func (p party) hear(b report.Heartbeat)           { p.Hear(b, time.Now()) }

// listen sends a writer's heartbeat, which comes back after a while.
func listen(p party, after time.Duration) {
	said := p.heartbeat()
	time.Sleep(after)
	p.hear(said)
}

// talk lets two writers hear each other.
func talk(mine, theirs party) {
	mine.hear(theirs.heartbeat())
	listen(mine, Interval)
}

var held = Place{"rs", 7}

// holding returns a writer that has listened for a while and has a turn.
func holding() party {
	h := newParty("a")
	for range 3 {
		listen(h, Interval)
	}
	h.take(held, true)
	return h
}

// hears delivers a heartbeat of another writer.
func hears(h party, number uint64, turns ...uint64) {
	h.hear(report.Heartbeat{Writer: "b", Number: number, Turns: map[string][]uint64{held.Controller: turns}})
}
