package reader

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

// deed is a command of a turn.
type deed struct {
	turns   string // the stream
	turn    uint64
	command int
}

// deedOf reads the audit id of a request of ours: the turn's stream and sequence, the
// command, and perhaps which try it was.
func deedOf(id string) (d deed, ok bool) {
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

// said is what the record says of a deed.
type said struct {
	events.Result
	at time.Time
}

// told is what the record says was done.
type told struct {
	results map[deed]said
	first   map[deed]uint64 // of a turn that was stored again: the turn that it repeats
	// begins and ends are when the turns of a stream do. An audit log may reach further
	// back than the record, which begins with the first of them.
	begins, ends map[string]time.Time
	since        time.Time
}

// origin is the deed as it was stored first.
func (t *told) origin(d deed) deed {
	if first, again := t.first[deed{d.turns, d.turn, 0}]; again {
		d.turn = first
	}
	return d
}

// audit holds the API server's audit log against the outcomes: every write of ours
// has one, and every write that was applied is in the log.
func (s *Session) audit(ctx context.Context, file string) ([]notary.Finding, error) {
	writes, err := ledger.Audit(file)
	if err != nil {
		return nil, err
	}
	t, err := s.told(ctx)
	if err != nil {
		return nil, err
	}
	return t.compare(writes), nil
}

// pendingFor is how long before the end of the record a write may lack its outcome.
const pendingFor = 10 * time.Second

func (t *told) compare(writes []check.Write) (found []notary.Finding) {
	seen := map[deed]bool{}
	var from, to time.Time
	for i := range writes {
		w := &writes[i]
		if from.IsZero() || w.At.Before(from) {
			from = w.At
		}
		if w.At.After(to) {
			to = w.At
		}
		d, ours := deedOf(w.ID)
		if !ours && (w.Foreign || w.At.Before(t.since)) || !w.Stored() {
			continue
		}
		if !ours {
			found = append(found, notary.Finding{Stream: "audit log", What: fmt.Sprintf("%v was written by our writer for no turn", w)})
			continue
		}
		d = t.origin(d)
		seen[d] = true
		if begins, on := t.begins[d.turns]; !on || w.At.Before(begins) || w.At.After(t.ends[d.turns].Add(-pendingFor)) {
			continue // the record does not reach so far
		}
		if r, ok := t.results[d]; !ok || !r.OK() && !r.Unsure {
			found = append(found, notary.Finding{Stream: d.turns, Sequence: d.turn, What: fmt.Sprintf("the audit log has %v, and the record has no outcome of it", w)})
		}
	}
	return append(found, t.unwritten(seen, from, to)...)
}

// unwritten are the writes on record that the audit log lacks, of the time that it is
// about. Kubernetes' Events are not in most audit logs.
func (t *told) unwritten(seen map[deed]bool, from, to time.Time) (found []notary.Finding) {
	for d, r := range t.results {
		if r.Status != events.Applied || r.Unsure || r.Ref.Kind == kinds.Events.Name || r.AuditID == "" || seen[d] {
			continue
		}
		if r.at.Before(from.Add(pendingFor)) || r.at.After(to.Add(-pendingFor)) {
			continue
		}
		found = append(found, notary.Finding{Stream: d.turns, Sequence: d.turn, What: fmt.Sprintf("command %d is on record as applied (%s), and the audit log lacks it", d.command, r.AuditID)})
	}
	slices.SortFunc(found, func(a, b notary.Finding) int {
		return cmp.Or(strings.Compare(a.Stream, b.Stream), cmp.Compare(a.Sequence, b.Sequence))
	})
	return found
}

// told reads the turns and the outcomes.
func (s *Session) told(ctx context.Context) (*told, error) {
	t := &told{results: map[deed]said{}, first: map[deed]uint64{}, begins: map[string]time.Time{}, ends: map[string]time.Time{}}
	controllers, err := s.Bus.Controllers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which controllers are on record: %w", err)
	}
	for _, c := range controllers {
		turns, outcomes := subject.TurnStream(c), subject.OutcomeStream(c)
		state, err := s.Bus.StreamState(ctx, outcomes)
		if err != nil {
			return nil, err
		}
		t.begins[turns], t.ends[turns] = state.Begins, state.Now
		if state.Created.After(state.Begins) {
			t.begins[turns] = state.Created
		}
		if t.since.IsZero() || t.begins[turns].Before(t.since) {
			t.since = t.begins[turns]
		}
		if state.Messages == 0 {
			continue
		}
		err = s.Bus.Read(ctx, bus.Passage{Stream: turns}, each(func(m events.Message, turn *events.Turn) {
			if turn.Repeats > 0 {
				t.first[deed{turns, m.Sequence, 0}] = turn.Repeats
			}
		}))
		if err != nil {
			return nil, err
		}
		err = s.Bus.Read(ctx, bus.Passage{Stream: outcomes}, each(func(m events.Message, o *events.Outcome) { t.outcome(turns, m, o) }))
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// outcome takes in what became of a turn. Of several tries one that succeeded counts.
func (t *told) outcome(turns string, m events.Message, o *events.Outcome) {
	for _, r := range o.Results {
		d := t.origin(deed{turns, o.Turn, r.Command})
		if before, there := t.results[d]; !there || !before.OK() {
			t.results[d] = said{r, m.Time}
		}
	}
}

// each hands over what is in the messages of a passage. What is damaged is left to
// the other findings.
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
