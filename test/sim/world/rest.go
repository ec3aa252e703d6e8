package world

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/rules"
)

// rest checks a world that has come to rest: it must be as its specs ask, the streams must
// agree with the API server, and for half an hour no client may write. If an exception leaves
// something to time, a client may, and rest checks the specs again after that.
func (w *World) rest() error {
	if err := rules.AsAsked(w.Cluster); err != nil {
		return fmt.Errorf("I1 (convergence) broken: %w", err)
	}
	if err := w.asSaid(); err != nil {
		return fmt.Errorf("I9 (watch contract) broken: %w", err)
	}
	silence := 30 * time.Minute
	if w.options.Quiet > 0 {
		silence = 0 // it has been silent already
		w.Guard.Spare(cluster.NoSilence)
	}
	w.Faults, w.Changes = 0, 0 // the remaining ones have had their chance
	before, until := w.API.Writes, w.Now.Add(silence)
	for w.horizon = silence; !w.Now.After(until) && w.step(); {
		if w.Broken != nil {
			return w.Broken
		}
	}
	if w.API.Writes != before && !w.Rest.Late {
		return fmt.Errorf("I1 (silence) broken: %d writes after the world had come to rest", w.API.Writes-before)
	}
	if w.Rest.Late && silence > 0 {
		if err := rules.AsAsked(w.Cluster); err != nil {
			return fmt.Errorf("I1 (convergence) broken: half an hour later, %w", err)
		}
	}
	for _, r := range w.Replicas {
		for _, d := range r.engines {
			if stall, stalled := d.Stall(); stalled {
				return fmt.Errorf("I1 (silence) broken: %s has nothing to do, and is said to stand still since %v: %v", stall.Controller, stall.Since, stall)
			}
		}
	}
	return nil
}

// meanwhile checks a world without faults at a moment at which nothing is in flight or due
// soon: every question has its answer. A later event could hide that it never got one.
func (w *World) meanwhile() {
	if w.options.Faults > 0 || !w.atRest() || w.soon() {
		return
	}
	if err := rules.Unanswered(w.Cluster); err != nil {
		w.Guard.Breaks("I1", "while nothing is under way, %v", err)
	}
}

// asSaid compares the streams with the API server.
func (w *World) asSaid() error {
	for _, c := range w.API.Kinds {
		s, live := w.Bus.Kinds[c.Kind.Name], 0
		for _, m := range s.Log {
			if !s.Current(m) || m.Delta.Op != events.Is {
				continue
			}
			live++
			obj := c.Objects[m.Delta.Ref]
			if obj == nil || obj.GetUID() != m.Delta.UID || obj.GetResourceVersion() != m.Delta.ResourceVersion {
				return fmt.Errorf("the state of %s has %v in version %s, the API server does not", c.Kind.Name, m.Delta.Ref, m.Delta.ResourceVersion)
			}
		}
		if live != len(c.Sorted) {
			return fmt.Errorf("the state of %s has %d objects, the API server %d", c.Kind.Name, live, len(c.Sorted))
		}
	}
	return nil
}
