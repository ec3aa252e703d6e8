package shell

import "github.com/millrace/millrace/pkg/events"

// decided makes the version of the key's own object that a turn was decided on one
// that the next turn has to have seen. Replicas take turns, and the memory of the
// one whose turn it is now may be behind: what the last turn did has come back to
// it, and what the last turn knew has not. It would decide on what is over, such as
// a scale that has been taken back.
func (d *Engine) decided(e *entry, o events.Outcome) []due {
	own := d.own(e.key)
	if o.ResourceVersion == "" || !d.reads(own.Kind) {
		return nil
	}
	u := due{
		result: events.Result{Status: events.Applied, Ref: own, UID: o.UID, Version: o.ResourceVersion}, discovery: d.discoveries + 1, since: d.now,
	}
	u.epoch, u.dated = o.Epochs[own.Kind]
	return []due{u}
}
