package sim

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/world"
)

// Blow is one fault at one point of a scenario. The patterns are those of Sieve (Sun et al.,
// OSDI 2022): a crash between any two steps, a view that is behind after a restart, a change
// that is never seen.
type Blow struct {
	What What
	// At is the step before which it happens or, for a fault of a request, the number of the
	// Request to the API server, from 1.
	At int
	// By is how many versions or messages a view is behind.
	By int
	// Unseen are messages that the reconcilers never see.
	Unseen []Place

	since int64 // the API server's version when it began
	until time.Time
}

// Place is where a message is stored.
type Place struct {
	Kind     kinds.Name
	Sequence uint64
}

// What is a kind of fault.
type What string

// The kinds of blows.
const (
	KillReconcilers What = "kill-reconcilers"
	KillWriter      What = "kill-writer"
	KillWatcher     What = "kill-watcher"
	KillAll         What = "kill-all"
	// Faults of a request.
	DieAfterEffect What = "die-after-effect"
	LoseAnswer     What = "lose-answer"
	FailRequest    What = "fail-request"
	BreakAfter     What = "500-after-effect"
	// Views that are behind by some messages or versions.
	OldStreams What = "restart-on-old-streams"
	OldServer  What = "restart-at-old-server"
	// Relist is a watcher that misses some versions and finds them compacted.
	Relist What = "relist"
	// Unseen is messages that are overwritten before they are read.
	Unseen What = "unseen"
	// Processes that stop for a minute while another one of their kind goes on.
	StallReconcilers What = "stall-reconcilers"
	StallWriter      What = "stall-writer"
	// LeaveReconcilers is a graceful restart.
	LeaveReconcilers What = "restart-reconcilers"
	// Losses of the bus, of By messages, or of the kind or book with that number.
	EmptyKind    What = "empty-kind"
	LoseLog      What = "lose-log"
	LoseTurns    What = "lose-turns"
	LoseOutcomes What = "lose-outcomes"
	// Consumers that are recreated, or are further than they should be.
	ForgetAll What = "redeliver-everything"
	SkipAll   What = "skip-everything"
	// ClockJump sets the clock of a process of the reconcilers an hour ahead.
	ClockJump What = "clock-jump"
	// Restore is an API server whose storage goes back.
	Restore What = "restore"
)

func (b Blow) String() string {
	switch {
	case len(b.Unseen) > 0:
		var parts []string
		for _, p := range b.Unseen {
			parts = append(parts, fmt.Sprintf("%s/%d", p.Kind, p.Sequence))
		}
		return string(b.What) + ":" + strings.Join(parts, "+")
	case b.By > 0:
		return fmt.Sprintf("%s@%d-%d", b.What, b.At, b.By)
	default:
		return fmt.Sprintf("%s@%d", b.What, b.At)
	}
}

// Step strikes before a step, if it is the one.
func (b *Blow) Step(w *world.World) {
	step := w.Counts.Steps
	if b.What == Unseen && step == 0 {
		unsee(w, b.Unseen)
	}
	if b.What == Relist && step > b.At {
		b.wake(w)
	}
	if step != b.At {
		return
	}
	w.Rest.Stirred = w.Now // a world that never sleeps has its quiet time after the fault
	switch b.What {
	case KillReconcilers:
		w.KillReplica(0)
	case KillWriter:
		w.KillWriter(0)
	case KillWatcher:
		w.KillWatcher(0)
	case KillAll:
		w.KillReplica(0)
		w.KillWriter(0)
		w.KillWatcher(0)
	case OldStreams:
		w.RestartBehind(0, b.By)
	case OldServer:
		w.WatchBehind(int64(b.By))
	case Relist:
		w.Note("fault: the watcher is away for %d versions", b.By)
		b.since, b.until = w.API.Version, w.Now.Add(world.Patience)
		w.Watchers[0].Asleep = b.until
	case StallReconcilers:
		w.StallReplica(0)
	case StallWriter:
		w.StallWriter(0)
	case LeaveReconcilers:
		w.LeaveReplica(0)
	default:
		b.lose(w)
	}
}

// lose makes the bus and the API server lose data.
func (b *Blow) lose(w *world.World) {
	switch b.What {
	case EmptyKind:
		w.EmptyKind(w.Bus.Kinds[w.Served[b.By-1].Name])
	case LoseLog:
		for _, k := range w.Served {
			w.LoseTail(w.Bus.Kinds[k.Name], b.By)
		}
	case LoseTurns:
		w.LoseTurns(b.By)
	case LoseOutcomes:
		w.LoseOutcomes(b.By)
	case ForgetAll:
		w.Redeliver()
	case SkipAll:
		w.SkipAhead()
	case ClockJump:
		w.Note("fault: the clock of the reconcilers jumps")
		w.Replicas[0].Skew += time.Hour
		w.Replicas[0].Advance() // events that were due in the past are due now
	case Restore:
		w.Restore(int64(b.By))
	}
}

// wake lets the watcher continue when it has missed enough.
func (b *Blow) wake(w *world.World) {
	if b.until.IsZero() || w.Now.Before(b.until) && w.API.Version < b.since+int64(b.By) {
		return
	}
	b.until = time.Time{}
	w.Watchers[0].Asleep = time.Time{}
	world.Compact(w)
}

// Request strikes a request to the API server, if it is the one.
func (b *Blow) Request(w *world.World) {
	if w.Asked != b.At {
		return
	}
	switch b.What {
	case DieAfterEffect:
		w.Crash = w.Writers[0]
	case LoseAnswer:
		w.Fated = append(w.Fated, world.LosesAnswer)
	case FailRequest:
		w.Fated = append(w.Fated, world.Fails)
	case BreakAfter:
		w.Fated = append(w.Fated, world.BreaksAfter)
	}
}

// unsee hides messages from the reconcilers until newer ones replace them.
func unsee(w *world.World, places []Place) {
	for _, f := range w.Replicas[0].Followers {
		for _, p := range places {
			if p.Kind == f.Stream.Kind.Name {
				f.Holds = append(f.Holds, &world.Hold{Sequence: p.Sequence})
			}
		}
	}
}

// Record is the run of a scenario without a fault.
type Record struct {
	Scenario Scenario
	Picture  string
	Tally    cluster.Tally
	options  world.Options
	requests int
	kinds    int
	// versions and messages hold the first step with each number of versions and messages.
	versions, messages []int
	overtaken          []Place
}

// Play plays a scenario.
func Play(s Scenario, o world.Options, controllers []reconcile.Any) (*world.World, error) {
	w := world.New(scripted(s, o), controllers)
	return w, w.Run()
}

// scripted returns the options of a world that plays a scenario.
func scripted(s Scenario, o world.Options) world.Options {
	o.Horizon = s.Horizon
	if o.Script = s.Script; s.Asks {
		o.Asks, o.Quiet = true, 3*time.Minute
	}
	return o
}

// Recorded plays a scenario without a fault and records the run.
func Recorded(s Scenario, o world.Options, controllers []reconcile.Any) (*Record, error) {
	r := &Record{Scenario: s, options: o}
	played := scripted(s, o)
	played.Record = r
	w := world.New(played, controllers)
	if err := w.Run(); err != nil {
		return nil, err
	}
	r.Picture, r.Tally, r.requests, r.kinds = Picture(w.Cluster), w.Tally(), w.Asked, len(w.Served)
	for _, k := range w.Served {
		stream := w.Bus.Kinds[k.Name]
		for _, m := range stream.Log {
			if m.Delta.Ref.Name != "" && !stream.Current(m) {
				r.overtaken = append(r.overtaken, Place{k.Name, m.Sequence})
			}
		}
	}
	return r, nil
}

// Step records the step at which something new appeared.
func (r *Record) Step(w *world.World) {
	messages := 0
	for _, k := range w.Served {
		messages += len(w.Bus.Kinds[k.Name].Log)
	}
	if messages > len(r.messages) {
		r.messages = append(r.messages, w.Counts.Steps)
	}
	if w.API.Writes > len(r.versions) {
		r.versions = append(r.versions, w.Counts.Steps)
	}
}

// Request implements [world.Probe]: nothing happens.
func (r *Record) Request(*world.World) {}

// Blows is every fault of a scenario: each once, at every point.
func (r *Record) Blows() iter.Seq[Blow] {
	return func(yield func(Blow) bool) {
		for _, blows := range []iter.Seq[Blow]{r.crashes(), r.stale(), r.unseen(), r.losses()} {
			for b := range blows {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// crashes is the first pattern: between any two steps, and around any request.
func (r *Record) crashes() iter.Seq[Blow] {
	return func(yield func(Blow) bool) {
		whats := []What{KillReconcilers, KillWriter, KillWatcher, KillAll}
		if r.options.Replicas > 1 {
			whats = []What{StallReconcilers, StallWriter, LeaveReconcilers, KillReconcilers, KillWriter}
		}
		for at := 1; at < r.Tally.Steps; at++ {
			for _, what := range whats {
				if !yield(Blow{What: what, At: at}) {
					return
				}
			}
		}
		for at := 1; at <= r.requests; at++ {
			for _, what := range []What{DieAfterEffect, LoseAnswer, FailRequest, BreakAfter} {
				if !yield(Blow{What: what, At: at}) {
					return
				}
			}
		}
	}
}

// stale is the second pattern: a restart at every point, on a view that is behind
// by any number of versions.
func (r *Record) stale() iter.Seq[Blow] {
	return func(yield func(Blow) bool) {
		for i, at := range r.messages {
			for by := 1; by <= i; by++ {
				if !yield(Blow{What: OldStreams, At: at, By: by}) {
					return
				}
			}
		}
		for i, at := range r.versions {
			for by := 1; by <= i; by++ {
				if !yield(Blow{What: OldServer, At: at, By: by}) || !yield(Blow{What: Relist, At: at, By: by}) {
					return
				}
			}
		}
	}
}

// unseen is the third pattern: every message whose object changes again is overwritten before
// it is read, alone and together with every other one.
func (r *Record) unseen() iter.Seq[Blow] {
	return func(yield func(Blow) bool) {
		for i, first := range r.overtaken {
			if !yield(Blow{What: Unseen, Unseen: []Place{first}}) {
				return
			}
			for _, second := range r.overtaken[:i] {
				if !yield(Blow{What: Unseen, Unseen: []Place{first, second}}) {
					return
				}
			}
		}
	}
}

// losses is not one of Sieve's patterns: everything that the bus can lose.
func (r *Record) losses() iter.Seq[Blow] {
	const most = 3
	return func(yield func(Blow) bool) {
		for _, at := range r.messages {
			for _, what := range []What{ForgetAll, SkipAll, ClockJump} {
				if (what != ClockJump || !r.Scenario.Clocks) && !yield(Blow{What: what, At: at}) {
					return
				}
			}
			for _, what := range []What{EmptyKind, LoseLog, LoseTurns, LoseOutcomes} {
				for by := 1; by <= most && (what != EmptyKind || by <= r.kinds); by++ {
					if !yield(Blow{What: what, At: at, By: by}) {
						return
					}
				}
			}
		}
	}
}

// Restores is a restore of the API server at every point to every earlier one. It reverts
// users' operations, so the run ends differently.
func (r *Record) Restores() iter.Seq[Blow] {
	return func(yield func(Blow) bool) {
		for i, at := range r.versions {
			for by := 1; by <= i; by++ {
				if !yield(Blow{What: Restore, At: at, By: by}) {
					return
				}
			}
		}
	}
}

// Cheated is the scenario with a cheat, and without the check of one of the invariants.
func (r *Record) Cheated(c world.Cheat, ignore string) *Record {
	cheated := *r
	cheated.options.Cheat, cheated.options.Ignore = c, ignore
	return &cheated
}

// Strike plays the scenario with a fault; the error is a broken invariant, or an end that
// differs.
func (r *Record) Strike(b Blow, controllers []reconcile.Any) (cluster.Tally, error) {
	o := r.options
	o.Blow = &b
	w, err := Play(r.Scenario, o, controllers)
	if err != nil {
		return w.Tally(), err
	}
	if end := Picture(w.Cluster); end != r.Picture && b.What != Restore {
		return w.Tally(), w.Failure(fmt.Errorf("I1 (same end) broken: it ended as\n%s\nand without the blow as\n%s", end, r.Picture))
	}
	return w.Tally(), nil
}
