package shell

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A replica without company needs no tickets of the bus: nobody else could have
// them, and it hears of every change as it folds it. So it writes them itself,
// which spares a delivery and an answer for each change and controller. They are
// for promptness alone. That nothing is overlooked rests on what it rests on with
// any number of replicas: whoever opens asks about every key, and looks a second
// time at each key that changed and had no turn.

// own is the handle of a ticket that a replica wrote itself: nobody waits for its
// answer.
type own struct{ at time.Time }

var _ Stamped = own{}

func (own) Done()               {}
func (own) Later(time.Duration) {}
func (own) Hopeless(string)     {}
func (own) Working()            {}
func (o own) Stored() time.Time { return o.at }

// Slip is a ticket that a replica writes itself.
type Slip struct {
	ref      events.Ref
	sequence uint64
	trace    events.Trace
	at       time.Time
}

// Slips are the tickets of what a batch of a kind's messages tells: one for each
// object, of its newest message, as a state stream would have them.
func Slips(batch []events.Message) []Slip {
	slips := make([]Slip, 0, len(batch))
	at := make(map[events.Ref]int, len(batch))
	for _, m := range batch {
		ref, err := subject.ParseDelta(m.Subject)
		if err != nil || ref.Name == "" {
			continue // a mark is for the memory alone
		}
		slip := Slip{ref: ref, sequence: m.Sequence, trace: events.TraceOf(m.Header), at: m.Time}
		if i, known := at[ref]; known {
			slips[i] = slip
			continue
		}
		at[ref] = len(slips)
		slips = append(slips, slip)
	}
	return slips
}

// Slips gives the desk tickets that its replica wrote itself, of what has just been
// folded.
func (d *Desk) Slips(slips []Slip) {
	for _, s := range slips {
		d.Ticket(s.ref, s.sequence, s.trace, own{s.at})
	}
}
