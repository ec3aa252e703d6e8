package kindlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// scrubFirst is the least time until the first pass over a log, scrubEvery the time between
	// later passes, and scrubPause the pause between windows of scrubWindow messages.
	scrubFirst  = 10 * time.Minute
	scrubEvery  = 6 * time.Hour
	scrubPause  = 2 * time.Second
	scrubWindow = 1000
	// scrubPatience bounds the reading of a window, whose last message may expire meanwhile.
	scrubPatience = time.Minute
)

// scrubber reads a log slowly, and checks that all of it is still what was stored: an auditor wants
// to learn of damage while there is a backup.
type scrubber struct {
	bus   bus.Bus
	kind  kinds.Name
	pause time.Duration

	chain    events.Chain
	next     uint64
	found    []events.Hole
	recorded map[[2]uint64]bool // first and last lost message of the gaps in the log
}

// Scrub reads the log of a kind again and again, until the context ends, and calls found with the
// holes of each pass that no gap records.
func Scrub(ctx context.Context, b bus.Bus, kind kinds.Name, found func([]events.Hole)) {
	for wait := scrubFirst + rand.N(scrubFirst); ; wait = scrubEvery {
		sleep.For(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		holes, err := Holes(ctx, b, kind, scrubPause)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Cannot read the log through; it is tried again later", "kind", kind, "because", err)
		}
		found(holes)
	}
}

// Holes reads the log of a kind once, up to its present end, with pauses between windows, and returns
// the holes that no gap records.
func Holes(ctx context.Context, b bus.Bus, kind kinds.Name, pause time.Duration) ([]events.Hole, error) {
	s := scrubber{bus: b, kind: kind, pause: pause}
	return s.pass(ctx)
}

// pass reads the log once, up to its present end, and returns the holes that no gap records.
func (s *scrubber) pass(ctx context.Context) ([]events.Hole, error) {
	log, err := s.bus.StreamState(ctx, subject.LogStream(s.kind))
	if err != nil {
		return nil, fmt.Errorf("look at the log of %s: %w", s.kind, err)
	}
	s.recorded = map[[2]uint64]bool{}
	for s.next = log.First; s.next <= log.Last; {
		// A message at the end may have expired, and would never come.
		held, err := s.lastHeld(ctx, log.Last)
		if err != nil {
			return nil, err
		}
		if held < s.next {
			break
		}
		if err := s.window(ctx, held); err != nil {
			return nil, err
		}
		sleep.For(ctx, s.pause)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	known := func(h events.Hole) bool { return s.recorded[[2]uint64{h.From, h.To}] }
	return slices.DeleteFunc(s.found, known), nil
}

// lastHeld returns the last message that the log holds, up to a sequence.
func (s *scrubber) lastHeld(ctx context.Context, last uint64) (uint64, error) {
	for ; last >= s.next; last-- {
		if _, there, err := s.bus.At(ctx, subject.LogStream(s.kind), last); err != nil || there {
			return last, err
		}
	}
	return last, nil
}

// window reads at most scrubWindow messages, up to last, which exists.
func (s *scrubber) window(ctx context.Context, last uint64) error {
	ctx, cancel := context.WithTimeout(ctx, scrubPatience)
	defer cancel()
	read := 0
	err := s.bus.Follow(ctx, subject.LogStream(s.kind), s.next, func(batch []events.Message) error {
		for _, m := range batch {
			if m.Sequence > last || read == scrubWindow {
				return errEnough
			}
			read++
			s.next = m.Sequence + 1
			if err := s.check(ctx, m); err != nil {
				return err
			}
			if m.Sequence == last {
				return errEnough
			}
		}
		return nil
	})
	if errors.Is(err, events.ErrDamaged) {
		s.found = append(s.found, events.Hole{Reason: "the bus cannot read the log on", From: s.next, To: last})
		s.next = last + 1
		return nil
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (s *scrubber) check(ctx context.Context, m events.Message) error {
	d, err := Decode(m)
	if err != nil {
		s.found = append(s.found, events.Hole{Reason: "a message of the log is damaged", From: m.Sequence, To: m.Sequence})
		return nil
	}
	if d.Op == events.Gap {
		var h events.Hole
		if json.Unmarshal(d.Body, &h) == nil {
			s.recorded[[2]uint64{h.From, h.To}] = true
		}
	}
	h, ok := s.chain.Next(m, d)
	if ok {
		return nil
	}
	log, err := s.bus.StreamState(ctx, subject.LogStream(s.kind))
	if err != nil {
		return fmt.Errorf("look at the log of %s: %w", s.kind, err)
	}
	if h.From = max(h.From, log.First); h.From <= h.To { // otherwise the message has expired
		s.found = append(s.found, h)
	}
	return nil
}
