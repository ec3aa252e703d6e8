package auditlog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/cmd/internal/check/ledger"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/subject"
)

// operation is a command of a turn.
type operation struct {
	turns   string // the stream
	turn    uint64
	command int
}

// all is the operation's turn as a whole.
func (d operation) all() operation { return operation{d.turns, d.turn, 0} }

// operationOf parses the audit ID of a writer's request: the turn's stream and sequence, the
// command, and optionally the number of the try.
func operationOf(id string) (d operation, ok bool) {
	parts := strings.Split(id, ".")
	if len(parts) != 3 && len(parts) != 4 || !strings.HasPrefix(id, subject.TurnStream("")) {
		return d, false
	}
	d.turns = parts[0]
	var err, wrong error
	d.turn, err = strconv.ParseUint(parts[1], 10, 64)
	d.command, wrong = strconv.Atoi(parts[2])
	return d, err == nil && wrong == nil
}

// said is the recorded result of an operation.
type said struct {
	events.Result
	at time.Time
}

// told are all operations on record.
type told struct {
	results map[operation]said
	first   map[operation]uint64    // of a turn that was stored again: the turn that it repeats
	stored  map[operation]time.Time // when a turn was stored first; its command is 0
	// answered are the turns that have an outcome; their command is 0.
	answered map[operation]bool
	// begins and ends are the times at which the outcomes of a stream of turns begin and end.
	// since is the earliest begin: an audit log may reach further back than the record.
	begins, ends map[string]time.Time
	since        time.Time
}

func newTold() *told {
	return &told{
		results: map[operation]said{}, first: map[operation]uint64{}, stored: map[operation]time.Time{}, answered: map[operation]bool{},
		begins: map[string]time.Time{}, ends: map[string]time.Time{},
	}
}

// origin maps an operation of a turn that was stored again to that of the first turn.
func (t *told) origin(d operation) operation {
	if first, again := t.first[d.all()]; again {
		d.turn = first
	}
	return d
}

// Audited says how far an audit log and the record were compared. Writes and outcomes near an
// end of one of them cannot be judged, because their counterpart may lie beyond that end.
type Audited struct {
	// From and To are the times of the first and the last line of the audit log.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Writes is how many of the writer's requests in the audit log were looked up in the record,
	// and Outcomes how many applied commands of the record were looked up in the audit log.
	Writes   int `json:"writes"`
	Outcomes int `json:"outcomes"`
	// Open is how many writes and outcomes could not be judged.
	Open int `json:"open"`
}

// Compare compares the API server's audit log in a file with the outcomes on record: every request
// of the writer must have an outcome, and every applied command must be in the log.
//
// Errors: the file cannot be read, or is no audit log; the record cannot be read.
func Compare(ctx context.Context, b bus.Archive, file string) (*Audited, []notary.Finding, error) {
	writes, err := ledger.Audit(file)
	if err != nil {
		return nil, nil, err
	}
	if len(writes) == 0 {
		return nil, nil, fmt.Errorf("read --audit-log: %s has no line of an API server's audit log", file)
	}
	t, err := read(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	about, found := t.compare(writes)
	return about, found, nil
}

const (
	// pendingFor is how long before the end of the record a write may lack its outcome, and
	// underWay how long if the whole turn has none, because it may still be in flight.
	pendingFor, underWay = 10 * time.Second, 10 * time.Minute
	// skew is how far the clocks of the bus and the API server may be apart.
	skew = 2 * time.Second
)

func (t *told) compare(writes []check.Write) (about *Audited, found []notary.Finding) {
	about = &Audited{From: writes[0].At, To: writes[0].At}
	us, seen := t.us(writes), map[operation]bool{}
	for i := range writes {
		w := &writes[i]
		if w.At.Before(about.From) {
			about.From = w.At
		}
		if w.At.After(about.To) {
			about.To = w.At
		}
		if !w.Stored() {
			continue
		}
		d, ours := operationOf(w.ID)
		switch {
		case ours:
			d = t.origin(d)
			seen[d] = seen[d] || t.after(d, w.At)
			found = append(found, t.unsaid(about, d, w)...)
		case !w.Foreign || us[w.User]:
			if w.Ref.Kind != kinds.Events.Name && !w.At.Before(t.since) { // Kubernetes' Events are told beside turns
				found = append(found, notary.Finding{Stream: "audit log", What: fmt.Sprintf("%v was written by our writer for no turn", w)})
			}
		}
	}
	return about, append(found, t.unwritten(about, seen)...)
}

// after is whether a write was made after its turn was stored. An audit log that reaches
// further back than the record may have the same operation ids of an earlier record.
func (t *told) after(d operation, write time.Time) bool {
	begun, known := t.stored[d.all()]
	return !known || write.After(begun.Add(-skew))
}

// us are the users of the writers, found as the users that made a write that is on record.
func (t *told) us(writes []check.Write) map[string]bool {
	us := map[string]bool{}
	for i := range writes {
		if d, ours := operationOf(writes[i].ID); ours && t.results[t.origin(d)].AuditID == writes[i].ID {
			us[writes[i].User] = true
		}
	}
	return us
}

// unsaid is a finding if the record has no outcome for a request of the writer.
func (t *told) unsaid(about *Audited, d operation, w *check.Write) []notary.Finding {
	begins, on := t.begins[d.turns]
	if !on || w.At.Before(begins) {
		return nil // the record does not reach back so far
	}
	if r, ok := t.results[d]; ok && (r.OK() || r.Unsure) {
		about.Writes++
		return nil
	}
	begun, known := t.stored[d.all()]
	if ends := t.ends[d.turns]; w.At.After(ends.Add(-pendingFor)) || known && !t.answered[d.all()] && begun.After(ends.Add(-underWay)) {
		about.Open++
		return nil
	}
	about.Writes++
	return []notary.Finding{{Stream: d.turns, Sequence: d.turn, What: fmt.Sprintf("the audit log has %v, and the record has no outcome of it", w)}}
}

// unwritten are findings for applied commands that the audit log lacks although it covers their
// time. It skips Kubernetes' Events, which most audit logs do not have.
func (t *told) unwritten(about *Audited, seen map[operation]bool) (found []notary.Finding) {
	for d, r := range t.results {
		if r.Status != events.Applied || r.Unsure || r.Ref.Kind == kinds.Events.Name || r.AuditID == "" {
			continue
		}
		begun, known := t.stored[d.all()]
		switch inside := known && begun.After(about.From.Add(skew)) && r.at.Before(about.To.Add(-skew)); {
		case seen[d]:
			about.Outcomes++
		case inside:
			about.Outcomes++
			found = append(found, notary.Finding{Stream: d.turns, Sequence: d.turn, What: fmt.Sprintf("command %d is on record as applied (%s), and the audit log lacks it", d.command, r.AuditID)})
		default:
			about.Open++
		}
	}
	slices.SortFunc(found, func(a, b notary.Finding) int {
		return cmp.Or(strings.Compare(a.Stream, b.Stream), cmp.Compare(a.Sequence, b.Sequence), strings.Compare(a.What, b.What))
	})
	return found
}

// read reads the turns and the outcomes.
func read(ctx context.Context, b bus.Archive) (*told, error) {
	t := newTold()
	controllers, err := b.Controllers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which controllers are on record: %w", err)
	}
	for _, c := range controllers {
		turns, outcomes := subject.TurnStream(c), subject.OutcomeStream(c)
		state, err := b.StreamState(ctx, outcomes)
		if err != nil {
			return nil, err
		}
		t.begins[turns], t.ends[turns] = state.Begins, state.Now
		if whole := state.First <= 1 && state.Whole <= 1; whole || state.Created.After(state.Begins) {
			t.begins[turns] = state.Created // not Begins: a write is older than its outcome
		}
		if t.since.IsZero() || t.begins[turns].Before(t.since) {
			t.since = t.begins[turns]
		}
		if state.Messages == 0 {
			continue
		}
		err = b.Read(ctx, bus.Passage{Stream: turns}, each(func(m events.Message, turn *events.Turn) {
			if turn.Repeats > 0 {
				t.first[operation{turns, m.Sequence, 0}] = turn.Repeats
			} else {
				t.stored[operation{turns, m.Sequence, 0}] = m.Time
			}
		}))
		if err != nil {
			return nil, err
		}
		err = b.Read(ctx, bus.Passage{Stream: outcomes}, each(func(m events.Message, o *events.Outcome) { t.outcome(turns, m, o) }))
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// outcome adds the results of an outcome. Of several tries, the one that succeeded counts.
func (t *told) outcome(turns string, m events.Message, o *events.Outcome) {
	t.answered[t.origin(operation{turns, o.Turn, 0})] = true
	for _, r := range o.Results {
		d := t.origin(operation{turns, o.Turn, r.Command})
		if before, there := t.results[d]; !there || !before.OK() {
			t.results[d] = said{r, m.Time}
		}
	}
}

// each decodes messages and passes their values to handle. It skips damaged messages, which
// verify's other checks find.
func each[T any](handle func(events.Message, *T)) func([]events.Message) error {
	return func(batch []events.Message) error {
		for _, m := range batch {
			value := new(T)
			if events.DecodeJSON(m, value) == nil {
				handle(m, value)
			}
		}
		return nil
	}
}
