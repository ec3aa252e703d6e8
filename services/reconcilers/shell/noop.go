package shell

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// No-ops. A decision whose outcome changes nothing must not be made again at once: the view
// does not show what is already done, and if the view is wrong it never will. So the same
// commands wait, from the second time on and twice as long each time, until the controller
// decides something else. And when the API server and the view keep disagreeing about whether
// an object exists, the engine suspects the view, and asks the watchers to compare.

// suspectAfter is how long they may disagree, and the least time between two requests to the
// watchers.
const suspectAfter = 10 * time.Second

// noOps records the turns of a lane that changed nothing.
type noOps struct {
	rounds  int // no-op turns in a row, of the same commands
	until   time.Time
	decided uint64 // the digest of the last turn's commands, as far as this engine knows
	// divergent is an object about which the API server contradicts the view, and since is
	// since when.
	divergent types.UID
	since     time.Time
}

// countNoOps records whether an outcome changed nothing, and whether it contradicts the view.
func (d *Engine) countNoOps(l *lane, o events.Outcome) {
	v := &l.noOps
	switch {
	case !changedNothing(o):
		v.rounds = 0
	case v.rounds == 0: // an earlier attempt may have carried it out: look again at once
		v.rounds, v.until = 1, d.now
	default:
		v.until = d.now.Add(d.settings.delay(v.rounds))
		v.rounds++
	}
	at, found := d.contradiction(o.Results)
	switch {
	case !found:
		v.divergent = ""
	case at.UID != v.divergent:
		v.divergent, v.since = at.UID, d.now
	case d.now.Sub(v.since) >= suspectAfter:
		d.reportDivergence(at)
	}
}

func changedNothing(o events.Outcome) bool {
	for _, r := range o.Results {
		if r.Status != events.Unchanged {
			return false
		}
	}
	return len(o.Results) > 0
}

// waits is until when commands wait because they changed nothing before.
func (v *noOps) waits(commands []events.Command) time.Time {
	if v.rounds == 0 || events.Digest(commands) != v.decided {
		return time.Time{}
	}
	return v.until
}

// decide records the commands of a turn. Other commands than the last ones start a new count.
func (v *noOps) decide(commands []events.Command) {
	if now := events.Digest(commands); now != v.decided {
		v.rounds, v.decided = 0, now
	}
}

// contradiction is the first result that contradicts the memory about whether its object exists. For
// a moment that is normal.
func (d *Engine) contradiction(results []events.Result) (at events.Result, found bool) {
	d.cache.View(d.name, nil, func(s cache.Snapshot) {
		for _, r := range results {
			if !d.shut[r.Ref.Kind] && s.Contradicts(r) {
				at, found = r, true
				return
			}
		}
	})
	return at, found
}

// reportOverdue reports effects that have been awaited for suspectAfter, if the memory contradicts
// them.
func (d *Engine) reportOverdue(effects []effect) {
	for _, u := range effects {
		if d.now.Sub(u.since) < suspectAfter {
			continue
		}
		if at, found := d.contradiction([]events.Result{u.Result}); found {
			d.reportDivergence(at)
		}
	}
}

// reportDivergence asks the watchers to compare a kind with the API server. They do not answer:
// their corrections come as deltas.
func (d *Engine) reportDivergence(r events.Result) {
	kind := r.Ref.Kind
	if at, asked := d.suspected[kind]; d.settings.Suspect == nil || asked && d.now.Sub(at) < suspectAfter {
		return
	}
	d.suspected[kind] = d.now
	damage := events.Damage{Kind: kind, Suspected: true, About: r.Ref, UID: r.UID, Removed: r.Removed || r.Status == events.Absent}
	is, seen := "there", "it is not"
	if damage.Removed {
		is, seen = "gone", "it is there"
	} else {
		damage.Version = r.Version
	}
	damage.Hole.Reason = fmt.Sprintf("the API server says that %v, uid %s, is %s, and the state that %s", r.Ref, r.UID, is, seen)
	d.settings.Suspect(damage)
}
