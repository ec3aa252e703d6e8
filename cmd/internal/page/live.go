package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/record"
)

const (
	// liveViews is the maximum of live views at a time, because each follows all streams.
	liveViews = 32
	// rhythm is how often happenings are sent, and heartbeat the longest time without sending
	// anything.
	rhythm    = 100 * time.Millisecond
	heartbeat = 15 * time.Second
	// stall is the time-out of one write to a client.
	stall = 30 * time.Second
	// backlog is the maximum of happenings queued for one client; beyond that it is told that
	// it has missed some.
	backlog = 2000
)

// live sends new happenings as server-sent events: "begun" once it follows the streams,
// "happened" with a list, "missed" if the backlog was full, and "trouble" with an error when
// it ends.
func (p *page) live(w http.ResponseWriter, q *http.Request) {
	if err := p.reachable(); err != nil {
		fail(w, err)
		return
	}
	select {
	case p.lives <- struct{}{}:
		defer func() { <-p.lives }()
	default:
		say(w, http.StatusServiceUnavailable, "crowded", fmt.Errorf("%d live views are open already: close one", liveViews))
		return
	}
	ctx, stop := context.WithCancel(q.Context())
	defer stop()
	filter, err := (&ask{page: p, values: q.URL.Query()}).filter(ctx)
	if err != nil {
		fail(w, err)
		return
	}
	v := &view{w: w, control: http.NewResponseController(w), begun: make(chan struct{})}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	ended := make(chan error, 1)
	go func() {
		ended <- p.record.TailFrom(ctx, filter, func() error { close(v.begun); return nil }, v.hear)
	}()
	select {
	case <-v.begun:
		if v.send("begun", struct{}{}) == nil {
			v.pump(ctx, ended, p.reachable)
		}
	case err := <-ended:
		v.end(err)
	}
}

// view is one client of live.
type view struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   chan struct{}

	mu     sync.Mutex
	heard  []record.Happening
	missed bool
}

// hear queues a happening. It never blocks, because that would block the consumer of the bus.
func (v *view) hear(h record.Happening) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.heard) < backlog {
		v.heard = append(v.heard, h)
	} else {
		v.missed = true
	}
	return nil
}

// pump sends queued happenings until the client or the bus goes away. It polls reachable, because
// TailFrom does not report that the bus is away.
func (v *view) pump(ctx context.Context, ended <-chan error, reachable func() error) {
	ticks := time.NewTicker(rhythm)
	defer ticks.Stop()
	sent := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-ended:
			v.end(err)
			return
		case <-ticks.C:
			if err := reachable(); err != nil {
				v.end(err)
				return
			}
			something, err := v.flush()
			if !something && time.Since(sent) >= heartbeat {
				something, err = true, v.put(": still here\n\n")
			}
			if err != nil {
				return
			}
			if something {
				sent = time.Now()
			}
		}
	}
}

func (v *view) flush() (something bool, err error) {
	v.mu.Lock()
	heard, missed := v.heard, v.missed
	v.heard, v.missed = nil, false
	v.mu.Unlock()
	if len(heard) > 0 {
		err = v.send("happened", heard)
	}
	if missed {
		err = errors.Join(err, v.send("missed", struct{}{}))
	}
	return len(heard) > 0 || missed, err
}

// end sends the error that ends the view.
func (v *view) end(err error) {
	if err != nil {
		_ = v.send("trouble", trouble{Code: "ended", Error: err.Error()})
	}
}

func (v *view) send(event string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write what happened: %w", err)
	}
	return v.put("event: " + event + "\ndata: " + string(text) + "\n\n")
}

func (v *view) put(text string) error {
	_ = v.control.SetWriteDeadline(time.Now().Add(stall)) // without deadlines, a write may block for longer
	if _, err := v.w.Write([]byte(text)); err != nil {
		return err
	}
	return v.control.Flush()
}
