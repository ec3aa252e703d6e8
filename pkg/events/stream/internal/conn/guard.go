package conn

import (
	"context"
	"strings"

	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// requestGuard ends a request that the server has refused. The server's error names the subject, never
// the request, so each request registers a word to look for in it.
type requestGuard struct {
	about  string
	cancel context.CancelCauseFunc
}

// Guarded returns a context that a refusal cancels, with the refusal as its cause. The caller
// must call the function at the end of the request.
func (c *Conn) Guarded(ctx context.Context, about string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &requestGuard{about: about, cancel: cancel}
	c.mu.Lock()
	c.waiting[g] = struct{}{}
	c.mu.Unlock()
	return ctx, func() {
		c.mu.Lock()
		delete(c.waiting, g)
		c.mu.Unlock()
		cancel(nil)
	}
}

func (c *Conn) refuse(err error) {
	c.Stats.Forbidden.Inc()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal = &natserr.Refusal{Err: err}
	for g := range c.waiting {
		if strings.Contains(err.Error(), g.about) {
			g.cancel(c.refusal)
		}
	}
}
