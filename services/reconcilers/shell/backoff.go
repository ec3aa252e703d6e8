package shell

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// minRetryInterval is the least time between two tries of a failing turn when changes of objects other
// than the key's own end its back-off.
const minRetryInterval = time.Second

// backoff is until when a lane waits because of its failures. A change that another
// program made ends the wait, once: it may be the cure, or need a turn more than the failure
// does. What this controller wrote itself is none, or a failure that is reported on the
// object would be tried again without end.
//
// Upstream: an event adds a key to the queue at once, also while it waits there
// for AddRateLimited; the failures are counted on. There a storm of events makes as many
// tries.
func (d *Engine) backoff(e *entry, l *lane, a answer) time.Time {
	if !d.now.Before(l.notBefore) {
		return l.notBefore
	}
	if a.object != nil {
		if at := a.object.GetResourceVersion(); at != l.tried && at != e.wrote {
			return time.Time{}
		}
	}
	if d.hasForeignChange(e, l) {
		return earliest(l.notBefore, l.failed.Add(minRetryInterval))
	}
	return l.notBefore
}

// hasForeignChange reports whether a change asks for the key that the lane's last turn had not seen, that
// another program made, and that is not of the key's own object.
func (d *Engine) hasForeignChange(e *entry, l *lane) (some bool) {
	d.cache.View(d.name, nil, func(s cache.Snapshot) {
		some = slices.ContainsFunc(e.Triggers, func(t events.Trigger) bool {
			if t.Ref.Kind == "" || t.Ref == d.own(e.key) || t.Sequence <= l.saw[t.Ref.Kind] {
				return false
			}
			made := func(r events.Result) bool { return r.Ref == t.Ref && s.IsAsLeft(r) }
			return !slices.ContainsFunc(e.write.last.Results, made) && !slices.ContainsFunc(e.status.last.Results, made)
		})
	})
	return some
}
