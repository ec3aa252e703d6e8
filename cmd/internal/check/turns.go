package check

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// lane is a lane of a key of a controller.
type lane struct {
	controller string
	key        events.Key
	lane       events.Lane
}

// follow calls each for every turn of the lanes with its predecessor, if it has one.
func (b *books) follow(which events.Lane, each func(before, turn *Turn)) {
	last := map[lane]*Turn{}
	for i := range b.Turns {
		t := &b.Turns[i]
		if t.Lane != which {
			continue
		}
		at := lane{t.Controller, t.Key, t.Lane}
		if before := last[at]; before != nil {
			each(before, t)
		}
		last[at] = t
	}
}

// ordered: a turn of the write lane is stored after the outcome of its predecessor, and
// rests on no older version of its object.
func ordered(b *books) []Violation {
	var found []Violation
	add := func(before, t *Turn, format string, args ...any) {
		found = append(found, violation([]string{before.String(), t.String()}, format, args...))
	}
	b.follow(events.LaneWrite, func(before, t *Turn) {
		if b.origin(t.place()) == b.origin(before.place()) {
			return // the same turn, stored again
		}
		told := b.outcomes[b.origin(before.place())]
		switch {
		case len(told) == 0:
			add(before, t, "%v was decided while the turn before it has no outcome", t.place())
		case told[0].At.After(t.At):
			add(before, t, "%v was stored at %s, the outcome of the turn before it only at %s", t.place(), t.At.Format(clock), told[0].At.Format(clock))
		}
		if t.UID == before.UID && number(t.ResourceVersion) < number(before.ResourceVersion) {
			add(before, t, "%v was decided on version %s, the turn before it on %s", t.place(), t.ResourceVersion, before.ResourceVersion)
		}
	})
	return found
}

// seen: the view of each turn of the write lane has the effects of its predecessor.
func seen(b *books) []Violation {
	told := map[kinds.Name]map[types.UID][]Entry{}
	for kind, log := range b.Logs {
		told[kind] = map[types.UID][]Entry{}
		for _, e := range log {
			told[kind][e.UID] = append(told[kind][e.UID], e) // marks and gaps have the empty UID
		}
	}
	var found []Violation
	b.follow(events.LaneWrite, func(before, t *Turn) {
		if b.origin(t.place()) == b.origin(before.place()) {
			return
		}
		for _, o := range b.outcomes[b.origin(before.place())] {
			for _, r := range o.Results {
				upTo, watched := t.Seen[r.Ref.Kind]
				if r.Status != events.Applied || r.Version == "" || r.Removed || !watched {
					continue
				}
				if at := firstTold(told[r.Ref.Kind], r.UID, number(r.Version)); at > upTo {
					found = append(found, violation([]string{before.String(), t.String()},
						"%v had seen %s up to %d, and version %s of %v, which the turn before it wrote, is told at %d", t.place(), r.Ref.Kind, upTo, r.Version, r.Ref, at))
				}
			}
		}
	})
	return found
}

// firstTold is the sequence at which a log first has an object at or past a revision, or a
// mark or gap past it; 0 if it never does.
func firstTold(log map[types.UID][]Entry, uid types.UID, revision int64) uint64 {
	at := uint64(0)
	for _, of := range []types.UID{uid, ""} {
		for _, e := range log[of] {
			if (e.Revision >= revision || e.Op == events.Gone) && (at == 0 || e.Sequence < at) {
				at = e.Sequence
			}
		}
	}
	return at
}

// mostWrites is the number of writes of one object in a minute that counts as a loop. It is high,
// because a Deployment that is scaled and rolled continuously has its status and its
// annotations written with each step.
const mostWrites = 300

// paced counts the writes of each object, minute by minute.
func paced(b *books) []Violation {
	type minute struct {
		ref events.Ref
		at  int64
	}
	counts := map[minute]int{}
	var found []Violation
	for i := range b.Writes {
		w := &b.Writes[i]
		if w.Foreign || !w.Ended || w.Ref.Kind == eventsKind || w.Ref.Name == "" {
			continue
		}
		m := minute{w.Ref, w.At.Unix() / 60}
		counts[m]++
		b.busiest = max(b.busiest, counts[m])
		if counts[m] == mostWrites {
			found = append(found, violation([]string{w.String()}, "%v was written %d times in the minute from %s on",
				w.Ref, mostWrites, time.Unix(m.at*60, 0).UTC().Format(clock)))
		}
	}
	return append(found, b.caused()...)
}

func unparked(b *books) []Violation {
	var found []Violation
	for _, t := range b.Turns {
		if t.Lane == events.LanePark {
			found = append(found, violation([]string{t.String()}, "%v of %s was set aside", t.Key, t.Controller))
		}
	}
	return found
}

func secret(b *books) []Violation {
	var found []Violation
	for _, where := range b.Leaks {
		found = append(found, violation(nil, "%s", fmt.Sprintf("the value of a Secret is in %s", where)))
	}
	return found
}
