package check

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// logged judges the log of every kind.
func logged(b *books) []Violation {
	var found []Violation
	stored := map[kinds.Name][]*Change{}
	for i := range b.Changes {
		kind := b.Changes[i].Object.Ref.Kind
		stored[kind] = append(stored[kind], &b.Changes[i])
	}
	for _, kind := range slices.Sorted(maps.Keys(b.Logs)) {
		j := &logJudge{kind: kind, log: b.Logs[kind], told: map[version]bool{}, hidden: map[int64]int{}}
		j.read()
		if changes := stored[kind]; len(changes) > 0 {
			j.compare(changes)
			j.fold(changes)
			j.end(changes)
		}
		found = append(found, j.found...)
		for end, n := range j.hidden {
			b.hidden += n
			b.hiding[fmt.Sprintf("%s up to revision %d", kind, end)] = hiding{n, mayHide(b.Logs[kind])}
		}
	}
	return found
}

// mayHide is how many changes one gap of a log may hide; see longestGap.
func mayHide(log []Entry) int {
	told := 0
	for _, e := range log {
		if e.Op == events.Is || e.Op == events.Gone {
			told++
		}
	}
	if told == 0 {
		return mostHidden
	}
	span := max(log[len(log)-1].At.Sub(log[0].At), longestGap)
	return max(mostHidden, int(float64(told)*float64(longestGap)/float64(span)))
}

// version identifies a change in a log.
type version struct {
	uid      types.UID
	revision int64
	gone     bool
}

// span is a range of revisions, without the first.
type span struct{ after, to int64 }

// logJudge judges one log.
type logJudge struct {
	kind   kinds.Name
	log    []Entry
	told   map[version]bool
	gaps   []span        // what the log may lack, by its own gaps
	hidden map[int64]int // by the end of the gap
	found  []Violation
}

func (j *logJudge) add(evidence []string, format string, args ...any) {
	j.found = append(j.found, violation(evidence, "the log of "+string(j.kind)+" "+format, args...))
}

func (e Entry) String() string {
	return fmt.Sprintf("message %d: %s %v, uid %s, version %d, epoch %d, again %t", e.Sequence, e.Op, e.Ref, e.UID, e.Revision, e.Epoch, e.Sync)
}

// read judges the log alone: it is contiguous and in order, and has each change once. Entries
// of lists (Sync) may be in any order.
func (j *logJudge) read() {
	newest, epoch, begun := int64(0), uint64(0), false
	for i, e := range j.log {
		if i > 0 && e.Sequence != j.log[i-1].Sequence+1 {
			j.add([]string{j.log[i-1].String(), e.String()}, "has a hole of %d messages", e.Sequence-j.log[i-1].Sequence-1)
		}
		if e.Epoch != epoch {
			newest, epoch = 0, e.Epoch
		}
		if e.Sync {
			j.told[version{e.UID, e.Revision, e.Op == events.Gone}] = true
			continue
		}
		switch e.Op {
		case events.Mark:
			if !begun { // the end of the first list: the log need not have earlier changes
				begun = true
				j.gaps = append(j.gaps, span{0, e.Revision})
			}
		case events.Gap:
			if e.Revision > 0 {
				j.gaps = append(j.gaps, span{newest, e.Revision})
			}
		default:
			if e.Revision <= newest {
				j.add([]string{e.String()}, "tells of version %d after %d", e.Revision, newest)
			}
			v := version{e.UID, e.Revision, e.Op == events.Gone}
			if j.told[v] {
				j.add([]string{e.String()}, "tells of one change twice")
			}
			j.told[v] = true
		}
		newest = max(newest, e.Revision)
	}
}

// compare finds changes of the storage that the log lacks outside of its gaps.
func (j *logJudge) compare(changes []*Change) {
	for _, c := range changes {
		if j.told[version{c.Object.UID, c.Revision, c.Gone}] {
			continue
		}
		if i := slices.IndexFunc(j.gaps, func(s span) bool { return c.Revision > s.after && c.Revision <= s.to }); i >= 0 {
			if j.gaps[i].after > 0 { // changes from before the log began do not count as hidden
				j.hidden[j.gaps[i].to]++
			}
			continue
		}
		j.add([]string{fmt.Sprintf("gaps: %v", j.gaps)}, "lacks revision %d of %v (removed: %t), and has no gap there", c.Revision, c.Object.Ref, c.Gone)
	}
}

// fold replays log and storage side by side, and compares the objects at each mark of the
// log.
func (j *logJudge) fold(changes []*Change) {
	here, there := map[events.Ref]edition{}, map[events.Ref]edition{}
	for _, e := range j.log {
		switch e.Op {
		case events.Is:
			here[e.Ref] = edition{e.UID, e.Revision}
		case events.Gone:
			delete(here, e.Ref)
		case events.Mark:
			for len(changes) > 0 && changes[0].Revision <= e.Revision {
				store(there, changes[0])
				changes = changes[1:]
			}
			if text := difference(here, there); text != "" {
				j.add([]string{e.String()}, "says that it has told of everything up to %d, and %s", e.Revision, text)
				return
			}
		}
	}
}

// end compares with the storage what a reader finds that begins where the newest mark tells it to.
func (j *logJudge) end(changes []*Change) {
	since := uint64(0)
	for _, e := range j.log {
		if e.Op == events.Mark || e.Op == events.Gap {
			since = e.Since
		}
	}
	here, there := map[events.Ref]edition{}, map[events.Ref]edition{}
	for _, e := range j.log {
		if e.Sequence < since {
			continue
		}
		switch e.Op {
		case events.Is:
			here[e.Ref] = edition{e.UID, e.Revision}
		case events.Gone:
			delete(here, e.Ref)
		case events.Mark, events.Gap:
		}
	}
	for _, c := range changes {
		store(there, c)
	}
	if text := difference(here, there); text != "" {
		j.add(nil, "gives a reader that begins at message %d a state in which %s", max(since, 1), text)
	}
}

func store(there map[events.Ref]edition, c *Change) {
	if c.Gone {
		delete(there, c.Object.Ref)
		return
	}
	there[c.Object.Ref] = edition{c.Object.UID, c.Revision}
}

// difference is a first difference between recorded and stored objects; "" for none.
func difference(told, stored map[events.Ref]edition) string {
	for ref, s := range stored {
		if t, ok := told[ref]; !ok {
			return fmt.Sprintf("%v is not there", ref)
		} else if t != s {
			return fmt.Sprintf("%v is at %d of uid %s instead of %d of %s", ref, t.revision, t.uid, s.revision, s.uid)
		}
	}
	for ref := range told {
		if _, ok := stored[ref]; !ok {
			return fmt.Sprintf("%v is there, which is gone", ref)
		}
	}
	return ""
}
