package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Fault is something that was done to the system on purpose, or a start of one of its
// processes.
type Fault struct {
	Kind string
	// Target is a process, such as writer-1, or a connection of one, such as writer-1>bus.
	Target       string
	Began, Ended time.Time
}

// The kinds of faults that causes name; see package fault.
const (
	diskLost    = "lost disk"
	diskDamaged = "damaged disk"
	restored    = "restore"
)

// Machine is the target of faults that were not made on purpose: the machine had no time for anything.
const Machine = "machine"

// of tells whether a fault met one of some processes, or a connection of one.
func (f Fault) of(processes ...string) bool {
	return slices.ContainsFunc(processes, func(p string) bool { return strings.HasPrefix(f.Target, p) })
}

// takes tells whether a fault took data away: from the disk of a server of the bus, or by an
// older storage.
func (f Fault) takes() bool { return f.Kind == diskLost || f.Kind == diskDamaged || f.Kind == restored }

// What the product says of itself that it does not know is believed only where a fault
// explains it. These are the bounds, and the reason of each.
const (
	// afterUnsure is how long after the end of a fault a turn that it met may be stored: what
	// was on its way to a process that ended is delivered again after some seconds. A turn
	// that is stored later is met by nothing.
	afterUnsure = 5 * time.Second
	// givenAgain is after what time the bus gives a turn to another writer, and manySlow how
	// many turns of a moment took longer where the machine was too slow for all of them.
	givenAgain = time.Second
	manySlow   = 5
	// afterGap is how long after a fault its gap may come: a watch that was lost is begun
	// anew within seconds, and a list takes seconds. On a machine that is busy it takes ten
	// times that.
	afterGap = time.Minute
	// longAway is how long a watcher must have been away to find that the API server has
	// forgotten what came meanwhile, without a fault of the server: kube-apiserver keeps the
	// changes of 75 s at least, and of both watchers one may have been away before.
	longAway = 30 * time.Second
	// longestGap is for how long watchers may be away: one gap may hide so many changes of a
	// kind as the log told in such a time on the average, or mostHidden where those are fewer.
	longestGap = time.Minute
	mostHidden = 180
	// afterUnread is how long after data were taken away turns may rest on a log that can no
	// longer be read: those that were decided before. Nothing is decided on a damaged log.
	afterUnread = 30 * time.Second
)

// unsureCause: an answer is lost with its connection, its server or the writer that waits for
// it, and a turn goes to another writer when a writer or the bus is away or has no time.
func unsureCause(f Fault) bool { return f.of("writer", "bus", "kube-apiserver", "etcd", Machine) }

// gapCauses are which faults explain a gap, by a part of the reason that the log gives;
// what is not here needs a fault that took data away.
var gapCauses = map[string]func(Fault) bool{
	"the API server has forgotten": forgets,
	"the API server did not serve": func(f Fault) bool { return f.of("kube-apiserver", "etcd") },
	// The watcher that had begun it was taken away in the middle.
	"a relist was not finished": func(f Fault) bool { return f.of("watcher", "bus", "kube-apiserver", "etcd") },
	"versions that waited":      func(f Fault) bool { return f.of("watcher", "bus") },
	// The bus copies a log to its state; when a server of it is lost, the copy is taken up
	// again late. Nothing is missing then, and the watcher cannot know.
	"has stood still":                         func(f Fault) bool { return f.of("bus") },
	"nothing came for":                        func(f Fault) bool { return f.of("bus") },
	", 0 of them damaged, where the log says": func(f Fault) bool { return f.of("bus") },
	// A server of the bus that came back may say another moment of the state's beginning.
	"the state stream has been made anew": func(f Fault) bool { return f.of("bus") },
}

// forgets: a kube-apiserver that starts knows nothing of what was before.
func forgets(f Fault) bool {
	return f.of("kube-apiserver", "etcd") || f.of("watcher") && f.Ended.Sub(f.Began) >= longAway
}

func gapCause(reason string) func(Fault) bool {
	for _, part := range slices.Sorted(maps.Keys(gapCauses)) {
		if strings.Contains(reason, part) {
			return gapCauses[part]
		}
	}
	return Fault.takes
}

// explained tells whether a fault of some sort was on, or over for no longer than some
// time, between two moments.
func (b *books) explained(by func(Fault) bool, from, to time.Time, after time.Duration) bool {
	return slices.ContainsFunc(b.Faults, func(f Fault) bool {
		return by(f) && !f.Began.After(to) && !f.Ended.Add(after).Before(from)
	})
}

// doubtful: a result is unsure only of a request whose answer a fault may
// have dropped, or of a turn that a fault may have taken from a writer.
func doubtful(b *books) []Violation {
	var found []Violation
	for i := range b.Outcomes {
		o := &b.Outcomes[i]
		turn := b.turns[o.place()]
		for _, r := range o.Results {
			if !r.Unsure {
				continue
			}
			from := o.At
			if turn != nil {
				from = turn.At
			}
			if b.explained(unsureCause, from, o.At, afterUnsure) {
				continue
			}
			if r.AuditID == "" && b.slow(turn, o) {
				b.crowded++
			} else {
				found = append(found, violation([]string{fmt.Sprintf("outcome: %+v", r)},
					"command %d of %v is unsure, and no fault met a writer, the bus or the API server between %s and %s",
					r.Command, o.place(), from.Format(clock), o.At.Format(clock)))
			}
		}
	}
	return found
}

// slow tells whether the bus gave a turn late, when it gave many so: the writer that has it
// cannot know then whether another one began it, and is unsure of what it finds. Where nothing
// was done to either, the machine had no time for them.
func (b *books) slow(turn *Turn, o *Outcome) bool {
	if turn == nil || o.At.Sub(turn.At) <= givenAgain {
		return false
	}
	others := 0
	for i := range b.Outcomes {
		other := &b.Outcomes[i]
		t := b.turns[other.place()]
		if t != nil && t != turn && other.At.Sub(t.At) > givenAgain && t.At.Before(o.At) && other.At.After(turn.At) {
			others++
		}
	}
	return others >= manySlow
}

// confessed: a gap has a reason, the reason has a fault, and what it hides is bounded.
func confessed(b *books) []Violation {
	var found []Violation
	for _, kind := range slices.Sorted(maps.Keys(b.Logs)) {
		for _, e := range b.Logs[kind] {
			if e.Op != events.Gap || b.explained(gapCause(e.Why), e.At, e.At, afterGap) {
				continue
			}
			found = append(found, violation([]string{e.String()}, "the log of %s has a gap at %s because %q, and no fault explains it",
				kind, e.At.Format(clock), e.Why))
		}
	}
	for _, at := range slices.Sorted(maps.Keys(b.hiding)) {
		if h := b.hiding[at]; h.changes > h.most {
			found = append(found, violation(nil, "the gap of %s hides %d changes, more than %d", at, h.changes, h.most))
		}
	}
	return found
}

// unreadable: each turn says how far it had read, and that can be found again.
func unreadable(b *books) []Violation {
	var found []Violation
	for i := range b.Turns {
		t := &b.Turns[i]
		for _, kind := range slices.Sorted(maps.Keys(t.Seen)) {
			if !b.readable(kind, t.Seen[kind]) && !b.explained(Fault.takes, t.At, t.At, afterUnread) {
				b.unread++
				found = append(found, violation([]string{t.String()}, "%v rests on %s up to message %d, and the log does not have it",
					t.place(), kind, t.Seen[kind]))
			}
		}
		if t.Lane == events.Act && t.UID != "" && len(t.Seen) == 0 {
			b.unread++
			found = append(found, violation([]string{t.String()}, "%v does not say what it had read", t.place()))
		}
	}
	return found
}

// readable tells whether a log goes up to a message.
func (b *books) readable(kind kinds.Name, upTo uint64) bool {
	log := b.Logs[kind]
	return upTo == 0 || len(log) > 0 && log[len(log)-1].Sequence >= upTo
}
