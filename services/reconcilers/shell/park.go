package shell

import (
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// Parked is a key or message that the engine has set aside. A message is named by the kind,
// namespace and name of its object.
type Parked struct {
	Key    events.Key `json:"key"`
	Reason string     `json:"reason"`
	At     time.Time  `json:"at"`
}

// maxReason bounds the reason of a parked key, which may quote a panic.
const maxReason = 4 << 10

// countBroken counts an attempt at a key that broke. After Attempts in a row it parks the key; a key
// that was parked before gets a single attempt.
func (d *Engine) countBroken(e *entry, reason string) {
	e.broken++
	d.tally.Broken++
	if e.parked == nil && e.broken < d.settings.Attempts {
		e.until = d.now.Add(d.settings.delay(e.broken))
		d.requeueAt(e, e.until)
		return
	}
	d.park(e, reason)
}

// park sets a key aside, as soon as a turn with the reason is stored. A later change or wake
// asks for the key again.
func (d *Engine) park(e *entry, reason string) {
	if e.dirty, e.Oldest = false, nil; e.round != nil {
		e.round.waiting = nil
	}
	if e.parking != "" {
		return
	}
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	e.parking = reason
	d.recallPark(e)
}

func (d *Engine) recallPark(e *entry) {
	if d.entries[e.key] != e {
		return
	}
	d.storing++
	d.io.Recall(e.key, events.LanePark)
}

func (d *Engine) parkRecalled(e *entry, past Past, err error) {
	if err != nil {
		d.parkLater(e)
		return
	}
	d.storing++
	d.io.Store(events.Turn{
		Controller: d.name, Key: e.key, Lane: events.LanePark, Triggers: slices.Clone(e.Triggers),
		Now: d.now, Because: e.parking, Code: d.settings.Code, Trace: traceOf(e.Triggers),
	}, past.Sequence)
}

func (d *Engine) parkStored(e *entry, err error) {
	switch {
	case errors.Is(err, bus.ErrOvertaken):
		d.recallPark(e)
		return
	case err != nil:
		d.parkLater(e)
		return
	}
	reason := e.parking
	e.parking, e.retries = "", 0
	if d.owns(e.key) { // else another replica owns it by now, and reports it
		e.parked = &Parked{Key: e.key, Reason: reason, At: d.now}
		d.parked[e.key] = e
	}
	d.requeue(e)
	d.dropUnowned(e)
}

func (d *Engine) parkLater(e *entry) {
	e.retries++
	d.timers.set(d.now.Add(d.settings.delay(e.retries)), func() { d.recallPark(e) })
}

// clearBroken records that a key was decided without breaking.
func (d *Engine) clearBroken(e *entry) {
	e.broken, e.until = 0, time.Time{}
	if e.parked != nil {
		e.parked = nil
		delete(d.parked, e.key)
	}
}

// Parked are the parked keys and messages, sorted by key.
func (d *Engine) Parked() []Parked {
	out := make([]Parked, 0, len(d.parked))
	for _, e := range d.parked {
		out = append(out, *e.parked)
	}
	slices.SortFunc(out, func(a, b Parked) int { return events.Ref(a.Key).Compare(events.Ref(b.Key)) })
	return out
}

// Unpark tries a parked key again. It returns false when the key is not parked.
func (d *Engine) Unpark(key events.Key) bool {
	e, ok := d.parked[key]
	if !ok {
		return false
	}
	if d.clearBroken(e); e.message {
		keys, reason, _ := d.mapped(events.Ref(key))
		if d.Ask(keys...); reason != "" {
			d.park(e, reason)
		}
		return true
	}
	d.enqueue(e, afterChange)
	return true
}
