package limits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// bucket is what writes are counted together in.
type bucket struct{ limit, namespace string }

// Window counts the writes of one controller. It is not safe for concurrent use.
type Window struct {
	limits []Limit
	made   map[bucket][]writes // in the order of the stream of outcomes
	// inFlight are the turns that were judged and whose outcomes have not been counted.
	inFlight map[uint64]judged
}

// writes are some writes at one moment.
type writes struct {
	at time.Time
	n  int
}

// judged is a turn in flight: when it was judged, what its commands count against, and which of them
// are held.
type judged struct {
	at       time.Time
	commands map[int][]bucket
	held     map[int]Verdict
}

// NewWindow makes the window of a controller. It is nil if no limit is about the controller.
func (s *Set) NewWindow(controller string) *Window {
	limits := s.of(controller)
	if len(limits) == 0 {
		return nil
	}
	return &Window{limits: limits, made: map[bucket][]writes{}, inFlight: map[uint64]judged{}}
}

// Names are the names of the limits.
func (w *Window) Names() (names []string) {
	for _, l := range w.limits {
		names = append(names, l.Name)
	}
	return names
}

// Reach is how far back writes count.
func (w *Window) Reach() (reach time.Duration) {
	for _, l := range w.limits {
		reach = max(reach, l.Within.Duration)
	}
	return reach
}

// Concerns reports whether a limit counts any of some commands.
func (w *Window) Concerns(commands []events.Command) bool {
	return w != nil && slices.ContainsFunc(commands, func(c events.Command) bool {
		return slices.ContainsFunc(w.limits, func(l Limit) bool { return l.limits(c) })
	})
}

// Count counts the writes of an outcome that was stored at a moment. From then on its turn is no
// longer in flight.
func (w *Window) Count(at time.Time, o events.Outcome) {
	delete(w.inFlight, o.Turn)
	for _, c := range o.WriteCounts {
		b := bucket{c.Limit, c.Namespace}
		w.made[b] = append(w.made[b], writes{at, c.Writes})
	}
}

// Forget forgets all counted outcomes, which are to be counted again. The turns in flight stay.
func (w *Window) Forget() { clear(w.made) }

// Verdict is why a command is held.
type Verdict struct {
	Limit   string
	Denied  bool
	Message string
}

// Decided tells what a person has decided about a limit, for the object of the turn's key.
type Decided func(limit string) (a events.Approval, approved, ok bool)

// Judge judges the commands of the turn with a sequence, and returns the verdicts on those that are
// held, by position. The others may be carried out; until the outcome of the turn is counted, they
// count as writes. An approved write does not count.
func (w *Window) Judge(now time.Time, turn uint64, commands []events.Command, decided Decided) map[int]Verdict {
	w.prune(now)
	delete(w.inFlight, turn) // an earlier delivery of it
	reserved := w.reserved()
	j := judged{at: now, commands: map[int][]bucket{}, held: map[int]Verdict{}}
	for i, c := range commands {
		for _, l := range w.limits {
			a, approved, ok := decided(l.Name)
			if !l.limits(c) || ok && approved {
				continue
			}
			b := l.bucket(c)
			j.commands[i] = append(j.commands[i], b)
			_, held := j.held[i]
			switch used := w.used(now, l, b) + reserved[b]; {
			case held:
			case ok:
				j.held[i] = Verdict{l.Name, true, denial(a)}
			case used >= l.Max:
				j.held[i] = Verdict{l.Name, false, w.reached(now, l, b, used)}
			}
		}
		if _, held := j.held[i]; !held {
			for _, b := range j.commands[i] {
				reserved[b]++
			}
		}
	}
	w.inFlight[turn] = j
	return j.held
}

// Counts are the writes of a judged turn that count, by what came of its commands. A write counts
// if its effect exists or may exist; one that is held, if an earlier delivery of the turn has made
// it.
func (w *Window) Counts(turn uint64, results []events.Result) []events.WriteCount {
	j, sums := w.inFlight[turn], map[bucket]int{}
	for _, r := range results {
		_, held := j.held[r.Command]
		if r.OK() || r.Unsure && !held {
			for _, b := range j.commands[r.Command] {
				sums[b]++
			}
		}
	}
	order := func(a, b bucket) int {
		return cmp.Or(cmp.Compare(a.limit, b.limit), cmp.Compare(a.namespace, b.namespace))
	}
	var counts []events.WriteCount
	for _, b := range slices.SortedFunc(maps.Keys(sums), order) {
		counts = append(counts, events.WriteCount{Limit: b.limit, Namespace: b.namespace, Writes: sums[b]})
	}
	return counts
}

// reserved is how many writes of each bucket are in flight.
func (w *Window) reserved() map[bucket]int {
	reserved := map[bucket]int{}
	for _, j := range w.inFlight {
		for i, buckets := range j.commands {
			if _, held := j.held[i]; held {
				continue
			}
			for _, b := range buckets {
				reserved[b]++
			}
		}
	}
	return reserved
}

// used is how many writes of a bucket have outcomes and count at a moment.
func (w *Window) used(now time.Time, l Limit, b bucket) (n int) {
	for _, made := range w.made[b] {
		if now.Sub(made.at) < l.Within.Duration {
			n += made.n
		}
	}
	return n
}

// abandoned is when a turn without an outcome no longer counts as in flight: no writer carries out a
// turn that old.
const abandoned = 10 * time.Minute

// prune forgets what no longer counts.
func (w *Window) prune(now time.Time) {
	reach := w.Reach()
	for b, all := range w.made {
		all = slices.DeleteFunc(all, func(made writes) bool { return now.Sub(made.at) >= reach })
		if w.made[b] = all; len(all) == 0 {
			delete(w.made, b)
		}
	}
	maps.DeleteFunc(w.inFlight, func(_ uint64, j judged) bool { return now.Sub(j.at) >= max(reach, abandoned) })
}

// denial is the message of a command that a person has denied.
func denial(a events.Approval) string {
	text := "denied by " + cmp.Or(a.By, "an unknown user")
	if a.Because != "" {
		text += ": " + a.Because
	}
	return text
}

// reached is the message of a command for which a limit has no room. used writes count against it.
func (w *Window) reached(now time.Time, l Limit, b bucket, used int) string {
	where := ""
	if b.namespace != "" {
		where = " in namespace " + b.namespace
	}
	if l.Max == 0 {
		return fmt.Sprintf("the write limit %q requires an approval%s; millrace held shows how", l.Name, where)
	}
	text := fmt.Sprintf("the write limit %q is reached: %d writes within %v%s", l.Name, l.Max, l.Within.Duration, where)
	if next, known := w.next(now, l, b, used-l.Max+1); known {
		text += ", the next at " + next.UTC().Format(time.RFC3339)
	}
	return text + ", or after an approval; millrace held shows how"
}

// next is when so many of a bucket's writes no longer count; known is false while too many are in
// flight.
func (w *Window) next(now time.Time, l Limit, b bucket, excess int) (at time.Time, known bool) {
	for _, made := range w.made[b] {
		if now.Sub(made.at) >= l.Within.Duration {
			continue
		}
		if excess -= made.n; excess <= 0 {
			return made.at.Add(l.Within.Duration), true
		}
	}
	return at, false
}
