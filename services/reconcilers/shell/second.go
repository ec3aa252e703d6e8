package shell

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// The second look. Tickets go to one replica each, and a ticket's turn is made
// on that replica's view, which has seen the ticket's own change but perhaps not
// yet a change of another kind. The other change's ticket may have gone to a
// replica that lacks the first one. Then no turn at all has seen both. So every
// replica also looks, a little later and when nobody waits, at each key whose
// inputs have changed in its own memory and that has not had a turn here since.
// Mostly there is nothing to want any more, and nothing is stored.

// look is a key that is to be looked at, at the latest at a moment.
type look struct {
	key events.Key
	at  time.Time
}

// note remembers the keys of changes that the memory has just folded.
func (d *Desk) note(keys []events.Key) {
	for _, k := range keys {
		if d.unseen[k].IsZero() {
			d.unseen[k] = d.now.Add(d.settings.Second)
			d.looks = append(d.looks, look{key: k, at: d.unseen[k]})
		}
	}
	d.armLook()
}

// looked says that a key is asked about on the memory as it is.
func (d *Desk) looked(e *entry) {
	delete(d.unseen, e.key)
	if news, ok := d.news[e.key]; ok {
		e.news = news
		delete(d.news, e.key)
	}
}

func (d *Desk) armLook() {
	if d.looking || len(d.looks) == 0 {
		return
	}
	d.looking = true
	d.timers.set(d.looks[0].at, func() {
		d.looking = false
		d.second()
	})
}

// second makes the keys dirty whose time for a second look has come. One that had
// its turn and changed again has another time: it must not be looked at before its
// ticket is here, or its turn would not know what asked for it.
func (d *Desk) second() {
	for len(d.looks) > 0 && !d.looks[0].at.After(d.now) {
		l := d.looks[0]
		d.looks = d.looks[1:]
		if d.unseen[l.key].Equal(l.at) {
			delete(d.unseen, l.key)
			d.demand(d.entry(l.key), idly)
		}
	}
	d.armLook()
}
