package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
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
	damage := report.Damage{Kind: kind, Suspected: true, About: r.Ref, UID: r.UID, Removed: r.Removed || r.Status == events.Absent}
	is, seen := "there", "it is not"
	if damage.Removed {
		is, seen = "gone", "it is there"
	} else {
		damage.Version = r.Version
	}
	damage.Hole.Reason = fmt.Sprintf("the API server says that %v, uid %s, is %s, and the state that %s", r.Ref, r.UID, is, seen)
	d.settings.Suspect(damage)
}

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
	d.timers.Set(d.now.Add(d.settings.delay(e.retries)), func() { d.recallPark(e) })
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
	d.enqueue(e, workqueue.AfterChange)
	return true
}
