package apply

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/plan"
)

// answered is the answer to a command's request.
type answered struct {
	command  int
	response plan.Response
}

// patience is how long a command goes on trying, and the pauses between tries.
type patience struct {
	until   time.Time
	pauses  backoff.BackOff
	doubted time.Time // since when; zero: never
	stood   string    // see [plan.Request]; of the present doubt
}

// inDoubt is for how long a command has been in doubt.
func (p *patience) inDoubt() time.Duration {
	if p.doubted.IsZero() {
		p.doubted = time.Now()
		return 0
	}
	return time.Since(p.doubted)
}

// Carry makes the requests of a plan until every command has a result. auditID
// names a command's request for the API server's audit log. holds is asked before more
// requests are made: whether the turn is still ours. No more are under way than may be
// in flight, so that few are left to be made once it is lost. done is false when the
// context ended or the turn was lost first; the requests under way have ended
// then as well.
func (d *Door) Carry(ctx context.Context, a Actor, p *plan.Plan, holds func() bool, auditID func(command, try int) string) (results []events.Result, done bool) {
	answers := make(chan answered)
	patient := map[int]*patience{}
	var next []plan.Request
	underWay := 0
	for {
		if ctx.Err() == nil && holds() {
			next = append(next, p.Next()...)
			for ; underWay < cap(d.flights) && len(next) > 0; next = next[1:] {
				r := next[0]
				pause := d.pause(patient, r)
				if r.Doubtful {
					r.InDoubt, r.Stood = patient[r.Command].inDoubt(), patient[r.Command].stood
				}
				underWay++
				go func() { answers <- answered{r.Command, d.after(ctx, pause, a, r, auditID(r.Command, r.Try))} }()
			}
		}
		if underWay == 0 {
			return p.Results()
		}
		got := <-answers
		underWay--
		until := patient[got.command].until
		patient[got.command].stood = got.response.Stood // what is sent may begin another doubt
		got.response.Spent = time.Now().Add(got.response.RetryAfter).After(until)
		if ctx.Err() != nil && got.response.Code == 0 {
			continue // interrupted, not answered: the command stays open
		}
		p.Answer(got.command, got.response)
	}
}

// pause is how long a request waits before it is made.
func (d *Door) pause(patient map[int]*patience, r plan.Request) time.Duration {
	p, ok := patient[r.Command]
	if !ok {
		pauses := backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(100*time.Millisecond),
			backoff.WithMaxInterval(5*time.Second),
			backoff.WithMaxElapsedTime(0),
		)
		p = &patience{until: time.Now().Add(d.config.Patience), pauses: pauses}
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

// after makes a request when the pause is over.
func (d *Door) after(ctx context.Context, pause time.Duration, a Actor, r plan.Request, auditID string) plan.Response {
	if pause > 0 {
		d.config.Metrics.retries.WithLabelValues(a.Controller, string(r.Verb)).Inc()
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return plan.Response{Reason: "Interrupted", Message: context.Cause(ctx).Error()}
		}
	}
	return d.guarded(ctx, a, r, auditID)
}

// guarded makes a request. A panic is an answer, too: no turn may end the process, which
// the next writer would be given it for.
func (d *Door) guarded(ctx context.Context, a Actor, r plan.Request, auditID string) (response plan.Response) {
	defer func() {
		if cause := recover(); cause != nil {
			d.config.Panicked(a.Controller, cause, debug.Stack())
			response = plan.Response{Reason: plan.ReasonPanicked, Message: fmt.Sprintf("the writer has a fault: %v", cause)}
		}
	}()
	return d.Do(ctx, a, r, auditID)
}
