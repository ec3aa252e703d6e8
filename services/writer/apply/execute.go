package apply

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/growstack"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/services/writer/plan"
)

// answered is the answer to a command's request.
type answered struct {
	command  int
	response plan.Response
}

// retryBudget is how long a command is retried, and the pauses between its tries.
type retryBudget struct {
	until         time.Time
	pauses        backoff.BackOff
	doubtedSince  time.Time // when the create was first in doubt; zero: never
	listedVersion string    // see [plan.Request]; of the current doubt
}

// doubtDuration returns how long a command has been in doubt.
func (p *retryBudget) doubtDuration() time.Duration {
	if p.doubtedSince.IsZero() {
		p.doubtedSince = time.Now()
		return 0
	}
	return time.Since(p.doubtedSince)
}

// Execute makes the requests of a plan until every command has a result. auditID names a command's
// request for the API server's audit log. Carry calls holds before it makes a request, also one
// that has waited, to ask whether the turn is still this writer's. It starts no more requests than
// may be in flight, so that few are left to be made when the turn is lost. done is false if the
// context ended or the turn was lost first; the requests in flight have ended then as well.
func (d *Client) Execute(ctx context.Context, a Actor, p *plan.Plan, holds func() bool, auditID func(command, try int) string) (results []events.Result, done bool) {
	answers, due := make(chan answered), make(chan plan.Request)
	patient := map[int]*retryBudget{}
	var next []plan.Request
	underWay, waiting := 0, 0
	resting, wake := context.WithCancel(ctx)
	defer wake()
	for {
		if ctx.Err() == nil && holds() {
			for _, r := range p.Next() {
				if pause := d.pauseBefore(patient, r); pause > 0 {
					waiting++
					d.config.Metrics.retries.WithLabelValues(a.Controller, string(r.Verb)).Inc()
					go func() { sleep.For(resting, pause); due <- r }()
				} else {
					next = append(next, r)
				}
			}
			for ; underWay < cap(d.inFlight) && len(next) > 0; next = next[1:] {
				r := next[0]
				if r.Doubtful {
					r.InDoubt, r.Stood = patient[r.Command].doubtDuration(), patient[r.Command].listedVersion
				}
				underWay++
				go func() {
					growstack.Grow()
					answers <- answered{r.Command, d.guarded(ctx, a, r, auditID(r.Command, r.Try))}
				}()
			}
		} else {
			wake()
		}
		if underWay+waiting == 0 {
			return p.Results()
		}
		select {
		case r := <-due:
			waiting--
			next = append(next, r)
		case got := <-answers:
			underWay--
			patient[got.command].take(ctx, p, got)
		}
	}
}

// pauseBefore returns how long a request waits before it is made.
func (d *Client) pauseBefore(patient map[int]*retryBudget, r plan.Request) time.Duration {
	p, ok := patient[r.Command]
	if !ok {
		pauses := backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(100*time.Millisecond),
			backoff.WithMaxInterval(5*time.Second),
			backoff.WithMaxElapsedTime(0),
		)
		p = &retryBudget{until: time.Now().Add(d.config.Patience), pauses: pauses}
		patient[r.Command] = p
	}
	switch {
	case !r.Wait:
		return 0
	case r.After > 0:
		return r.After
	default:
		return p.pauses.NextBackOff()
	}
}

// take passes an answer to the plan. An interrupted request leaves its command open.
func (t *retryBudget) take(ctx context.Context, p *plan.Plan, got answered) {
	t.listedVersion = got.response.Stood // a request that is sent may begin another doubt
	got.response.Spent = time.Now().Add(got.response.RetryAfter).After(t.until)
	if ctx.Err() == nil || got.response.Code != 0 {
		p.Answer(got.command, got.response)
	}
}

// guarded makes a request and turns a panic into an answer. Otherwise the process would end, and
// the bus would deliver the turn to the next writer.
func (d *Client) guarded(ctx context.Context, a Actor, r plan.Request, auditID string) (response plan.Response) {
	defer func() {
		if cause := recover(); cause != nil {
			d.config.Panicked(a.Controller, cause, debug.Stack())
			response = plan.Response{Reason: plan.ReasonPanicked, Message: fmt.Sprintf("the writer has a fault: %v", cause)}
		}
	}()
	return d.Do(ctx, a, r, auditID)
}
