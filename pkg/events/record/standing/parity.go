package standing

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
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Parity is how far a shadow controller agrees with kube-controller-manager.
type Parity struct {
	Controller string `json:"controller"`
	// Since and Until are the times of the first and of the last finding.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Findings counts the findings by agreement.
	Findings map[report.Agreement]int `json:"findings"`
	// Unexplained is how many of the findings are real differences.
	Unexplained int `json:"unexplained"`
	// Examples are findings with the requested agreements, the newest first.
	Examples []Example `json:"examples,omitempty"`
}

// Example is a finding with the turn that wanted the write; Decided is nil when no turn did, or
// when the turn is no longer stored.
type Example struct {
	report.Finding
	Decided *events.Turn `json:"decided,omitempty"`
	// Stored is the sequence of the finding in the shadow's stream.
	Stored uint64 `json:"stored"`
}

// Total is the number of findings.
func (p Parity) Total() (total int) {
	for _, n := range p.Findings {
		total += n
	}
	return total
}

// Percent is the share of explained findings, in percent; 100 when there are no findings.
func (p Parity) Percent() float64 {
	total := p.Total()
	if total == 0 {
		return 100
	}
	return 100 * float64(total-p.Unexplained) / float64(total)
}

// Compared selects findings.
type Compared struct {
	// Since leaves out earlier findings; zero: all that are stored.
	Since time.Time
	// Show are the agreements to give examples of, and Most how many of each.
	Show []report.Agreement
	Most int
}

// Parities gives the parity of each of the controllers that was ever a shadow, in the given
// order.
//
// Errors: the bus does not answer, or a stream cannot be read.
func (r *Reader) Parities(ctx context.Context, controllers []string, c Compared) ([]Parity, error) {
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

func (r *Reader) parity(ctx context.Context, controller string, c Compared) (Parity, error) {
	p := Parity{Controller: controller, Findings: map[report.Agreement]int{}}
	examples := map[report.Agreement][]Example{}
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
	for _, a := range slices.Backward(report.Agreements) {
		for _, e := range slices.Backward(examples[a]) {
			if e.Decided, err = r.shadowTurn(ctx, controller, e.Turn); err != nil {
				return p, err
			}
			p.Examples = append(p.Examples, e)
		}
	}
	return p, nil
}

func (p *Parity) count(f report.Finding) {
	p.Findings[f.Agreement]++
	if !f.Agreement.Explained() {
		p.Unexplained++
	}
	p.Since, p.Until = cmp.Or(p.Since, f.At), f.At
}

func (r *Reader) shadowTurn(ctx context.Context, controller string, sequence uint64) (*events.Turn, error) {
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

// Kinds are the agreements that occur in a parity, from agreement to difference.
func (p Parity) Kinds() []report.Agreement {
	return slices.SortedFunc(maps.Keys(p.Findings), func(a, b report.Agreement) int {
		return slices.Index(report.Agreements, a) - slices.Index(report.Agreements, b)
	})
}
