package takeover

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/report"
)

// Agreement is how far a shadow must have agreed with kube-controller-manager.
type Agreement struct {
	// For is how long the controller must have been compared. Only findings of that last period
	// count.
	For time.Duration
	// Writes is how many writes must have been compared in that period, for each controller.
	Writes int
	// Differences is how many of them may be unexplained.
	Differences int
}

// Step is one line of a plan.
type Step struct {
	Text string `json:"text"`
	// Refused is true if the move must not be made because of this.
	Refused bool `json:"refused,omitempty"`
}

// Plan is what a takeover does, and what speaks against it.
type Plan struct {
	Move
	Steps []Step `json:"steps"`
}

// Refused reports whether a step speaks against the takeover.
func (p Plan) Refused() bool {
	for _, s := range p.Steps {
		if s.Refused {
			return true
		}
	}
	return false
}

func (p *Plan) add(refused bool, text string, args ...any) {
	p.Steps = append(p.Steps, Step{Text: fmt.Sprintf(text, args...), Refused: refused})
}

// Plan makes the plan of a takeover. shadows is what the record knows of how the controllers agree, since
// ever and in the period that counts. off is true if a person says that no kube-controller-manager
// runs the controllers.
//
// Errors: the Lease cannot be read.
func (c *Client) Plan(ctx context.Context, m Move, wanted Agreement, shadows map[string]Shadow, off bool) (Plan, error) {
	p := Plan{Move: m}
	if m.Millrace() {
		p.add(false, "%s runs the controllers already", m.Holder)
		return p, nil
	}
	held, err := c.live(ctx, m.Lease)
	if err != nil {
		return p, err
	}
	if held {
		p.add(false, "%s, which holds the Lease %s, runs %s", m.Holder, m.Lease, strings.Join(m.Controllers, ", "))
	} else {
		p.unheld(c.managers(ctx).Finding(m.Controllers, ""), off)
	}
	if problem := m.Candidate.Problem; problem != "" {
		p.add(true, "Millrace could not run the controllers: %s", problem)
	}
	for _, name := range m.Controllers {
		p.agrees(name, wanted, shadows[name])
	}
	if held {
		p.add(false, "Millrace takes the Lease. The process of kube-controller-manager that has it cannot renew it, and ends by itself within its --leader-elect-renew-deadline (10 s). What supervises that process starts it again, to stand by")
		p.add(false, "Millrace runs the controllers from the moment at which the former Lease expires (15 s after its last renewal)")
	} else {
		p.add(false, "Millrace takes the Lease and runs the controllers at once")
	}
	p.add(false, "to go back: millrace giveback %s", strings.Join(m.Controllers, " "))
	return p, nil
}

// unheld judges a Lease without a live holder: is there a kube-controller-manager that runs the
// controllers without it?
func (p *Plan) unheld(f doctor.Finding, off bool) {
	const how = "let a kube-controller-manager that holds the Lease run them (docs/takeover.md)"
	switch {
	case f.State == doctor.OK:
		p.add(false, "no process holds the Lease %s: %s", p.Lease, f.Found)
	case off && f.State != doctor.Failed:
		p.add(false, "no process holds the Lease %s, and no kube-controller-manager runs the controllers, as you say (--kcm-is-off)", p.Lease)
	case f.State == doctor.Failed:
		p.add(true, "no process holds the Lease %s, but %s: %s", p.Lease, f.Found, how)
	default:
		p.add(true, "no process holds the Lease %s, and %s: %s; or say that it does not run them: --kcm-is-off", p.Lease, f.Found, how)
	}
}

// Shadow is what the record has of a controller in shadow: all of it, and of the last period.
type Shadow struct {
	Ever, Lately standing.Parity
}

// agrees judges a controller's shadow.
func (p *Plan) agrees(name string, wanted Agreement, s Shadow) {
	since := s.Ever.Since
	switch {
	case wanted.Writes <= 0:
		p.add(false, "%s: its shadow is not asked (--agreed-writes=0)", name)
	case since.IsZero():
		p.add(true, "%s: its shadow has not been compared yet", name)
	case time.Since(since) < wanted.For:
		p.add(true, "%s: its shadow is compared for %v, and not yet for %v (--agreed-for)", name, time.Since(since).Round(time.Second), wanted.For)
	case s.Lately.Total() < wanted.Writes:
		p.add(true, "%s: %d writes of its shadow were compared in the last %v, and not yet %d (--agreed-writes)", name, s.Lately.Total(), wanted.For, wanted.Writes)
	case s.Lately.Unexplained > wanted.Differences:
		p.add(true, "%s: nothing explains %d of %d differences between its shadow and kube-controller-manager: millrace shadow --differences --controller=%s; or accept them: --accept-differences=%d", name, s.Lately.Unexplained, s.Lately.Total(), name, s.Lately.Unexplained)
	default:
		p.add(false, "%s: its shadow agrees with kube-controller-manager in %d of %d writes of the last %v, exactly in %d", name, s.Lately.Total()-s.Lately.Unexplained, s.Lately.Total(), wanted.For, s.Lately.Findings[report.Agreed])
	}
}
