package shell

import (
	"github.com/millrace/millrace/pkg/events"

	"github.com/millrace/millrace/services/reconcilers/cache"
)

// ownVersion makes the version of the key's own object on which a turn was decided an effect that
// the next turn has to have seen. Replicas take turns, and the memory of the next one may lag:
// it has seen the effects of the last turn, but not what that turn had seen. It would decide on
// an old state, such as a scale that has been taken back.
func (d *Engine) ownVersion(e *entry, o events.Outcome) []effect {
	own := d.own(e.key)
	if o.ResourceVersion == "" || !d.reads(own.Kind) {
		return nil
	}
	result := events.Result{Status: events.Applied, Ref: own, UID: o.UID, Version: o.ResourceVersion}
	u := effect{Effect: cache.Effect{Result: result}, discovery: d.discoveries + 1, since: d.now}
	u.Epoch, u.Dated = o.Epochs[own.Kind]
	return []effect{u}
}
