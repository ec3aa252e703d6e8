package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/fault"
	"github.com/millrace/millrace/cmd/internal/wire"
	"github.com/millrace/millrace/pkg/events/sleep"
)

// strike is a fault as it was played.
type strike struct {
	fault.Fault
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"` // when all is ready again, as far as this fault goes
	Hit   int       `json:"hit"`   // how many of the targets existed
	Error string    `json:"error,omitempty"`
}

// play starts each fault at its time, and returns when the last one is over. It calls struck at once for
// each.
func (p *plant) play(ctx context.Context, schedule []fault.Fault, output io.Writer, struck func(fault.Fault)) []strike {
	began := time.Now()
	var mu sync.Mutex
	var played []strike
	var all sync.WaitGroup
	for _, f := range schedule {
		if !sleep.For(ctx, time.Until(began.Add(f.At))) {
			break
		}
		fmt.Fprintln(output, f)
		all.Go(func() {
			s := strike{Fault: f, Began: time.Now()}
			var err error
			if s.Hit, err = p.strike(ctx, f, struck); err != nil {
				s.Error = err.Error()
			}
			s.Ended = time.Now()
			mu.Lock()
			defer mu.Unlock()
			played = append(played, s)
		})
	}
	all.Wait()
	slices.SortFunc(played, func(a, b strike) int { return a.Number - b.Number })
	return played
}

// playSingly plays the faults one after the other, each when everything is ready again.
func (p *plant) playSingly(ctx context.Context, schedule []fault.Fault, output io.Writer, struck func(fault.Fault)) []strike {
	var played []strike
	for _, f := range schedule {
		played = append(played, p.play(ctx, []fault.Fault{f}, output, struck)...)
		whole, cancel := context.WithTimeout(ctx, comeBack)
		_ = p.awaitReady(whole) // rest checks later that all are ready in the end
		cancel()
		if !sleep.For(ctx, wholeFor+time.Second/2) {
			break
		}
	}
	return played
}

// strike applies one fault to all of its targets at once, and returns how many it hit.
func (p *plant) strike(ctx context.Context, f fault.Fault, struck func(fault.Fault)) (hit int, err error) {
	errs := make([]error, len(f.Targets))
	var all sync.WaitGroup
	for i, target := range f.Targets {
		all.Go(func() { errs[i] = p.strikeOne(ctx, f, target) })
	}
	struck(f)
	all.Wait()
	for _, one := range errs {
		switch {
		case one == nil:
			hit++
		case !errors.Is(one, errAway):
			err = one
		}
	}
	return hit, err
}

// comeBack bounds the time in which a process becomes ready again after a fault: another fault may hit it
// meanwhile.
const comeBack = time.Minute

func (p *plant) strikeOne(ctx context.Context, f fault.Fault, target string) error {
	switch f.Kind {
	case fault.Kill, fault.Restart:
		s := p.slot(target)
		if err := s.kill(f.Kind == fault.Restart, f.For); err != nil {
			return err
		}
		waiting, cancel := context.WithTimeout(ctx, f.For+comeBack)
		defer cancel()
		sleep.For(waiting, f.For)
		_ = s.awaitReady(waiting) // rest checks later that all are ready in the end
		return nil
	case fault.Pause:
		return p.slot(target).pause(ctx, f.For)
	case fault.Busy, fault.Broken, fault.Lose:
		p.fronts[target].Set(troubles[f.Kind])
		sleep.For(ctx, f.For)
		p.fronts[target].Set(wire.Trouble{})
	default:
		p.set(target, conditions[f.Kind])
		sleep.For(ctx, f.For)
		p.set(target, wire.Condition{})
	}
	return nil
}

var conditions = map[fault.Kind]wire.Condition{
	fault.Cut:      {Cut: true},
	fault.HalfOpen: {Dead: true},
	fault.Stall:    {Stall: true},
	fault.Delay:    {Delay: 150 * time.Millisecond},
	fault.Throttle: {Rate: 16 << 10},
}

var troubles = map[fault.Kind]wire.Trouble{
	fault.Busy:   {Every: 2, Code: http.StatusTooManyRequests, RetryAfter: 1},
	fault.Broken: {Every: 2, Code: http.StatusInternalServerError},
	fault.Lose:   {Every: 3, Lose: true},
}

func (p *plant) set(name string, c wire.Condition) {
	for _, w := range p.wires[name] {
		w.Set(c)
	}
}
