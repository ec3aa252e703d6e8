package watcher

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/services/watcher/source"
)

const (
	firstPause = 50 * time.Millisecond
	// nearPause bounds the pause while no server answers, jitter (half of it) not
	// counted: a server that is back must not wait for us.
	nearPause = 600 * time.Millisecond
	// farPause bounds the pause while the server answers, but refuses or fails.
	farPause = 10 * time.Second
	// settledAfter is how long a session must last for the back-off to start again from firstPause.
	settledAfter = 10 * time.Second
)

// retryPause is the back-off before the next attempt. The zero value is ready.
type retryPause struct{ near, far *backoff.ExponentialBackOff }

func (p *retryPause) next(err error) time.Duration {
	refused := source.Answered(err) && !source.Expired(err) || errors.Is(err, bus.ErrSettings)
	if !refused {
		p.near = cmp.Or(p.near, newBackoff(nearPause))
		return p.near.NextBackOff()
	}
	p.far = cmp.Or(p.far, newBackoff(farPause))
	wait := p.far.NextBackOff()
	if seconds, told := apierrors.SuggestsClientDelay(err); told {
		wait = max(wait, time.Duration(seconds)*time.Second)
	}
	return wait
}

func newBackoff(longest time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause), backoff.WithMaxInterval(longest),
		backoff.WithMultiplier(2), backoff.WithMaxElapsedTime(0))
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
