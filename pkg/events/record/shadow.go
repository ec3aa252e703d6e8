package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Parity is how far a controller in shadow agrees with kube-controller-manager.
type Parity struct {
	Controller string `json:"controller"`
	// Since and Until are the times of the first and of the last finding.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Findings is how many there are, by how the two compare.
	Findings map[events.Agreement]int `json:"findings"`
	// Unexplained is how many of them are differences.
	Unexplained int `json:"unexplained"`
	// Examples are findings of each kind that was asked for, the newest first.
	Examples []Example `json:"examples,omitempty"`
}

// Example is a finding with the turn that wanted something, nil where none did, or
// where that is not kept any more.
type Example struct {
	events.Finding
	Decided *events.Turn `json:"decided,omitempty"`
	// Stored is where in the shadow's stream the finding is.
	Stored uint64 `json:"stored"`
}

// Total is how many findings there are.
func (p Parity) Total() (total int) {
	for _, n := range p.Findings {
		total += n
	}
	return total
}

// Percent is how much of everything is explained, in percent; 100 where nothing was
// found.
func (p Parity) Percent() float64 {
	total := p.Total()
	if total == 0 {
		return 100
	}
	return 100 * float64(total-p.Unexplained) / float64(total)
}

// Compared says what is wanted of the comparison.
type Compared struct {
	// Since leaves out what was found before; zero: everything that is kept.
	Since time.Time
	// Show are the kinds of findings of which examples are wanted, and Most how many
	// of each.
	Show []events.Agreement
	Most int
}

// Parities compares those of some controllers that were ever in shadow, in the given
// order.
//
// Errors: the bus does not answer, or a stream cannot be read.
func (r *Record) Parities(ctx context.Context, controllers []string, c Compared) ([]Parity, error) {
	found := []Parity{}
	for _, name := range controllers {
		p, err := r.parity(ctx, name, c)
		if errors.Is(err, bus.ErrNoStream) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the shadow of %s: %w", name, err)
		}
		found = append(found, p)
	}
	return found, nil
}

func (r *Record) parity(ctx context.Context, controller string, c Compared) (Parity, error) {
	p := Parity{Controller: controller, Findings: map[events.Agreement]int{}}
	examples := map[events.Agreement][]Example{}
	passage := bus.Passage{Stream: subject.ShadowStream(controller), Subject: subject.Findings(controller), Since: c.Since}
	err := r.bus.Read(ctx, passage, func(batch []events.Message) error {
		for _, m := range batch {
			e := Example{Stored: m.Sequence}
			if err := events.DecodeJSON(m, &e.Finding); err != nil {
				return err
			}
			p.count(e.Finding)
			if slices.Contains(c.Show, e.Agreement) {
				all := append(examples[e.Agreement], e)
				examples[e.Agreement] = all[max(len(all)-c.Most, 0):]
			}
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	for _, a := range slices.Backward(events.Agreements) {
		for _, e := range slices.Backward(examples[a]) {
			if e.Decided, err = r.shadowTurn(ctx, controller, e.Turn); err != nil {
				return p, err
			}
			p.Examples = append(p.Examples, e)
		}
	}
	return p, nil
}

func (p *Parity) count(f events.Finding) {
	p.Findings[f.Agreement]++
	if !f.Agreement.Explained() {
		p.Unexplained++
	}
	p.Since, p.Until = cmp.Or(p.Since, f.At), f.At
}

func (r *Record) shadowTurn(ctx context.Context, controller string, sequence uint64) (*events.Turn, error) {
	if sequence == 0 {
		return nil, nil
	}
	m, there, err := r.bus.At(ctx, subject.ShadowStream(controller), sequence)
	if err != nil || !there {
		return nil, err
	}
	t := new(events.Turn)
	if err := events.DecodeJSON(m, t); err != nil {
		return nil, err
	}
	return t, nil
}

// Kinds of findings that there are in a parity, from agreement to difference.
func (p Parity) Kinds() []events.Agreement {
	return slices.SortedFunc(maps.Keys(p.Findings), func(a, b events.Agreement) int {
		return slices.Index(events.Agreements, a) - slices.Index(events.Agreements, b)
	})
}
