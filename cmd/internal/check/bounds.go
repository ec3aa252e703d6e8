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

// Fault is an injected fault, or a start of one of the processes.
type Fault struct {
	Kind string
	// Target is a process, such as writer-1, or one of its connections, such as writer-1>bus.
	Target       string
	Began, Ended time.Time
}

// The kinds of faults that causes name; see package fault.
const (
	halfOpen    = "half-open"
	diskLost    = "lost disk"
	diskDamaged = "damaged disk"
	restored    = "restore"
)

// Machine is the target of times in which the machine was overloaded, which were not injected.
const Machine = "machine"

// of is whether the target is one of some processes, or a connection of one.
func (f Fault) of(processes ...string) bool {
	return slices.ContainsFunc(processes, func(p string) bool { return strings.HasPrefix(f.Target, p) })
}

// takes is whether a fault removed data: from the disk of a bus server, or by a restore of
// the storage.
func (f Fault) takes() bool { return f.Kind == diskLost || f.Kind == diskDamaged || f.Kind == restored }

// deadFor is for how long a service may use a connection that is half-open: it sends a ping when
// nothing has arrived for 5 s, and closes the connection when that has no answer for 5 s.
const deadFor = 10 * time.Second

// over is when a fault has no effect any more on what begins later. The connections that it left
// half-open stay so when it ends.
func (f Fault) over() time.Time {
	if found := f.Began.Add(deadFor); f.Kind == halfOpen && found.After(f.Ended) {
		return found
	}
	return f.Ended
}

// Unsure results and gaps are accepted only if a fault explains them. These are the bounds, and
// the reason for each.
const (
	// afterUnsure is how long after a fault is over a turn may be stored for the fault to have
	// affected it: a delivery to a process that ended is redelivered after some seconds.
	afterUnsure = 5 * time.Second
	// givenAgain is after what time the bus redelivers a turn to another writer. If at least
	// manySlow other turns took longer at the same time, the machine was too slow.
	givenAgain = time.Second
	manySlow   = 5
	// afterGap is how long after a fault its gap may be recorded: a lost watch is restarted within
	// seconds, and a list takes seconds. On a busy machine they take ten times that.
	afterGap = time.Minute
	// longAway is how long a watcher must have been away for its resourceVersion to expire
	// without a fault of the API server: kube-apiserver keeps the changes of at least 75 s, and
	// the other one of both watchers may have been away before.
	longAway = 30 * time.Second
	// longestGap is how long watchers may be away: a gap may hide as many changes of a kind as
	// the log records in that time on average, and at least mostHidden.
	longestGap = time.Minute
	mostHidden = 180
	// afterUnread is how long after a loss of data stored turns may rest on messages that the log
	// no longer has, because they were decided before. No turn is decided on a damaged log.
	afterUnread = 30 * time.Second
)

// unsureCause is whether a fault may cause an unsure result: a response is lost with its
// connection, its server or the waiting writer, and a turn is redelivered to another writer when
// a writer or the bus is away or overloaded.
func unsureCause(f Fault) bool { return f.of("writer", "bus", "kube-apiserver", "etcd", Machine) }

// gapCauses are the faults that explain a gap, by a part of the gap's reason in the log. Any
// other reason needs a fault that removed data.
var gapCauses = map[string]func(Fault) bool{
	"the API server has forgotten": forgets,
	"the API server did not serve": func(f Fault) bool { return f.of("kube-apiserver", "etcd") },
	// The watcher was stopped in the middle of the relist.
	"a relist was not finished": func(f Fault) bool { return f.of("watcher", "bus", "kube-apiserver", "etcd") },
	"versions that waited":      func(f Fault) bool { return f.of("watcher", "bus") },
	// The bus may deliver late after the loss of a server. No message is missing then, but the
	// watcher cannot know that.
	"nothing came for":                 func(f Fault) bool { return f.of("bus") },
	"a part of the log cannot be read": func(f Fault) bool { return f.of("bus") || f.takes() },
}

// forgets is whether a fault may expire resourceVersions: a kube-apiserver that starts has no
// changes from before in its watch cache, and a watcher may have been away for longAway.
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

// explained is whether a matching fault was active between two moments, or had ended at most
// after before the first.
func (b *books) explained(by func(Fault) bool, from, to time.Time, after time.Duration) bool {
	return slices.ContainsFunc(b.Faults, func(f Fault) bool {
		return by(f) && !f.Began.After(to) && !f.over().Add(after).Before(from)
	})
}

// doubtful: a result is unsure only if a fault may have dropped the response to its request,
// or may have caused the redelivery of its turn.
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

// slow is whether a turn's outcome came late, together with many others, because the machine was
// overloaded: the writer then cannot know whether another writer has begun the turn, and its
// result is unsure without a fault.
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

// confessed: a gap has a reason, a fault explains the reason, and the number of hidden changes
// is bounded.
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

// unreadable: each turn says how far it had read the logs, and the logs still have that.
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
		if t.Lane == events.LaneWrite && t.UID != "" && len(t.Seen) == 0 {
			b.unread++
			found = append(found, violation([]string{t.String()}, "%v does not say what it had read", t.place()))
		}
	}
	return found
}

// readable is whether a log reaches at least to a message.
func (b *books) readable(kind kinds.Name, upTo uint64) bool {
	log := b.Logs[kind]
	return upTo == 0 || len(log) > 0 && log[len(log)-1].Sequence >= upTo
}
