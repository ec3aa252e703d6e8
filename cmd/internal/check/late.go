package check

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

const (
	// mostLate is how long a change of a spec may wait for a status with its generation:
	// docs/reliability.md says that lost messages are found within half a minute. The times of
	// faults, each with its aftermath, do not count.
	mostLate = 30 * time.Second
	// aftermath is how long a fault counts as active after its end: reconnecting takes up to five
	// seconds, and the process must catch up.
	aftermath = 5 * time.Second
)

// prompt: every change of a spec is observed in time, regardless of lost messages.
func prompt(b *books) []Violation {
	var found []Violation
	for _, uid := range slices.Sorted(maps.Keys(b.lives)) {
		life := b.lives[uid]
		pending, since := int64(0), time.Time{}
		for _, c := range life {
			told, known := b.toldAt(c)
			if !known || c.Object.Ref.Kind == pods {
				continue
			}
			if pending > 0 && (c.Gone || c.Object.Deleting || c.Object.Observed >= pending) {
				if took := b.calm(since, told); took > mostLate {
					found = append(found, violation(b.evidence(nil, c), "generation %d of %v was told at %s, and its status at %s: %v in which nothing was wrong",
						pending, c.Object.Ref, since.Format(clock), told.Format(clock), took.Round(time.Millisecond)))
				}
				pending = 0
			}
			if pending == 0 && !c.Gone && !c.Object.Deleting && c.Object.Generation > c.Object.Observed && observes(c.Object.Ref.Kind) {
				pending, since = c.Object.Generation, told
			}
		}
	}
	return found
}

// observes is whether the status of a kind has an observedGeneration.
func observes(kind kinds.Name) bool {
	return slices.Contains([]kinds.Name{deployments, replicaSets, replicationControllers, statefulSets, daemonSets, budgets}, kind)
}

// toldAt is when the log recorded a change.
func (b *books) toldAt(c *Change) (time.Time, bool) {
	at, known := b.times[version{c.Object.UID, c.Revision, c.Gone}]
	return at, known
}

// calm is how long, between two moments, no fault was active.
func (b *books) calm(from, to time.Time) time.Duration {
	left, at := time.Duration(0), from
	for _, f := range b.ordered {
		end := f.Ended.Add(aftermath)
		if end.Before(at) || f.Began.After(to) {
			continue
		}
		left += max(0, f.Began.Sub(at))
		at = end
	}
	return left + max(0, to.Sub(at))
}

// freeWrites is how many writes of one object in a minute need no cause: faults.md requires
// fewer than twenty while nothing changes. Each change of the object by another client, of its
// dependents, and of their dependents, is a cause for one more.
const freeWrites = 20

// caused: an object is not written more often than something changes.
func (b *books) caused() []Violation {
	type minute struct {
		uid types.UID
		at  int64
	}
	writes, causes := map[minute]int{}, map[minute]int{}
	for i := range b.Changes {
		c := &b.Changes[i]
		told, known := b.toldAt(c)
		if !known {
			continue
		}
		at := told.Unix() / 60
		if m := (minute{c.Object.UID, at}); b.by[edition{c.Object.UID, c.Revision}] != nil {
			writes[m]++
		} else {
			causes[m]++
		}
		for o, left := &c.Object, 2; o != nil && left > 0; left-- { // its owner, and the owner of that
			owner := controllerOf(o)
			if owner == nil {
				break
			}
			causes[minute{owner.UID, at}]++
			o = b.at(owner.UID, c.Revision)
		}
	}
	var found []Violation
	for _, uid := range slices.Sorted(maps.Keys(b.lives)) {
		first := b.lives[uid][0]
		if !observes(first.Object.Ref.Kind) && first.Object.Ref.Kind != pods && first.Object.Ref.Kind != jobs || first.Object.Ref.Kind == budgets {
			continue // these kinds also depend on objects that the history does not have
		}
		for _, c := range b.lives[uid] {
			told, _ := b.toldAt(c)
			m := minute{uid, told.Unix() / 60}
			// A change at the end of a minute is acted on in the next.
			allowed := freeWrites + causes[m] + causes[minute{uid, m.at - 1}]
			if owner := controllerOf(&c.Object); owner != nil { // a change of the owner may cause a write of the object
				allowed += causes[minute{owner.UID, m.at}]
			}
			if writes[m] > allowed {
				found = append(found, violation([]string{b.name(uid)}, "%s was written %d times in the minute from %s on, for %d causes",
					b.name(uid), writes[m], time.Unix(m.at*60, 0).UTC().Format(clock), allowed-freeWrites))
				writes[m] = 0
			}
		}
	}
	return found
}

// index builds the indexes for the rules about workloads.
func (b *books) index() {
	b.ordered = slices.SortedFunc(slices.Values(b.Faults), func(a, c Fault) int { return a.Began.Compare(c.Began) })
	for _, uid := range slices.Sorted(maps.Keys(b.lives)) {
		owners := map[types.UID]bool{}
		for _, c := range b.lives[uid] {
			if o := controllerOf(&c.Object); o != nil && !owners[o.UID] {
				owners[o.UID] = true
				b.owned[o.UID] = append(b.owned[o.UID], uid)
			}
		}
		if o := b.lives[uid][0].Object; o.Ref.Kind == pods && o.App != "" {
			of := label{o.Ref.Namespace, o.App}
			b.labelled[of] = append(b.labelled[of], uid)
		}
	}
	b.fillTimes()
}

// fillTimes indexes when the logs first recorded each change.
func (b *books) fillTimes() {
	for _, log := range b.Logs {
		for _, e := range log {
			if v := (version{e.UID, e.Revision, e.Op == events.Gone}); e.Op != events.Mark && e.Op != events.Gap && b.times[v].IsZero() {
				b.times[v] = e.At
			}
		}
	}
}
