package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/rules"
	"github.com/millrace/millrace/test/sim/streams"
	"github.com/millrace/millrace/test/sim/workloads"
)

// stored checks a turn when it is stored: no write turn may overlap another, nor rest on a view
// that lacks the effects of the previous one.
func (w *World) stored(d *replicaEngine, t events.Turn, sequence uint64, seen *cluster.Look) {
	w.Counts.Turns++
	w.Note("turn %d of %s %v (%s): %s, %d commands", sequence, t.Controller, t.Key, t.Lane, t.Because, len(t.Commands))
	rules.Whole(w.Guard, t, sequence)
	if d.replica.Skew > w.options.Skew {
		w.Guard.Turns.Ahead[cluster.ActLane{Controller: t.Controller, Key: t.Key}] = w.Now
	}
	if t.Lane != events.LaneWrite {
		if t.Repeats == 0 {
			rules.Judge(w.Guard, t, sequence, seen)
		}
		return
	}
	workloads.Rescales(w.Guard, t, sequence)
	g, at := w.Guard, cluster.ActLane{Controller: t.Controller, Key: t.Key}
	before := g.Turns.Act[at]
	g.Turns.Act[at] = sequence
	if t.Repeats == before && before > 0 { // a repetition is the same turn again
		g.Turns.Seen[cluster.TurnOf{Controller: t.Controller, Sequence: sequence}] = g.Turns.Seen[cluster.TurnOf{Controller: t.Controller, Sequence: before}]
		return
	}
	g.Turns.Seen[cluster.TurnOf{Controller: t.Controller, Sequence: sequence}] = seen
	rules.Judge(g, t, sequence, seen)
	if before == 0 {
		return
	}
	if !d.book.Decided(before) {
		g.Breaks("I8", "turn %d of %s %v was stored while turn %d had no outcome", sequence, t.Controller, t.Key, before)
	}
	_, _, last := d.book.Last(streams.Lane{Key: t.Key, Lane: t.Lane})
	if last == nil || last.Turn != before {
		return
	}
	for _, r := range last.Results {
		log, followed := g.Record.Logs[r.Ref.Kind]
		seen, reads := t.Seen[r.Ref.Kind]
		if r.Status != events.Applied && r.Status != events.Unchanged || r.Version == "" || !followed || !reads || last.Epochs[r.Ref.Kind] != log.Epoch {
			continue // versions of an earlier epoch are not comparable
		}
		said, known := log.Tells(r.Ref, r.Version)
		was, had := cluster.First(log.Lost[r.Ref], r.Version)
		obj := g.World.API.Get(r.Ref)
		switch {
		case known && said <= seen:
		case had && was <= seen:
			g.Spare(cluster.Unnoticed)
		case !known && log.Vague:
			g.Spare(cluster.Forgotten)
		case !known && (obj == nil || kinds.CompareVersions(obj.GetResourceVersion(), r.Version) < 0):
			g.Spare(cluster.GoneUnsaid)
		default:
			g.Breaks("I10", "turn %d of %s %v has seen %s up to %d, and not version %s that turn %d made", sequence, t.Controller, t.Key, r.Ref.Kind, seen, r.Version, before)
		}
	}
}

// said checks a delta that a watcher appended.
func (w *World) said(s *streams.Stream, d events.Delta) {
	log := w.Guard.Record.Logs[d.Kind]
	if _, known := w.Guard.Record.Epochs[d.Epoch]; !known {
		w.Guard.Record.Epochs[d.Epoch] = w.Now
	}
	if d.Epoch > log.Epoch { // the watcher does not repeat unchanged objects
		log.Epoch, log.Version, log.Vague = d.Epoch, "", true
	}
	said := cluster.Telling{Sequence: uint64(len(s.Log)), Version: d.ResourceVersion}
	if d.Sync && d.Op == events.Gone { // it has the last known version
		said.Version = strconv.FormatInt(w.API.Version, 10)
	}
	if d.Ref.Name != "" {
		log.Told[d.Ref] = append(log.Told[d.Ref], said)
	}
	switch {
	case d.Op == events.Mark:
		log.Vague = false
	case d.Ref.Name == "", d.Sync:
	case d.Epoch < log.Epoch || log.Version != "" && kinds.CompareVersions(d.ResourceVersion, log.Version) <= 0:
		w.Guard.Breaks("I9", "the log of %s goes from version %s to %s", d.Kind, log.Version, d.ResourceVersion)
	default:
		log.Version = d.ResourceVersion
	}
}

// watched is a controller that decides some keys twice: once normally, and once on a copy of
// its view that was encoded and decoded.
func (w *World) watched(c reconcile.Any, d *replicaEngine) twice {
	return twice{c, w.Guard, cluster.NewLooks(c.Describe(), rules.Judgements[c.Describe().Name].Kinds), d}
}

type twice struct {
	reconcile.Any
	guard  *cluster.Guard
	looks  *cluster.Looks
	engine *replicaEngine
}

// Describe implements [reconcile.Any]. The engine gets every key that a change asks for.
func (t twice) Describe() reconcile.Description {
	described := t.Any.Describe()
	described.Inputs = slices.Clone(described.Inputs)
	for i, in := range described.Inputs {
		if in.Keys != nil {
			described.Inputs[i].Keys = func(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
				return t.engine.maps(in.Keys(s, was, now))
			}
		}
	}
	return described
}

// sample is the number of decisions for each one that is repeated.
const sample = 64

// Ask implements [reconcile.Any].
func (t twice) Ask(s reconcile.Snapshot, k events.Key, now time.Time) (reconcile.Decision, bool) {
	delete(t.engine.wanted, k)
	decision, ok := t.Any.Ask(s, k, now)
	if len(decision.Commands) == 0 {
		return decision, ok
	}
	t.looks.Take(s, k, now, decision)
	if t.guard.Turns.Decided++; t.guard.Turns.Decided%sample != 0 {
		t.guard.Spare(cluster.Sampled)
		return decision, ok
	}
	view, _, err := t.View(s, k)
	if err != nil {
		t.guard.Breaks("I13", "the view of %s %v cannot be written down: %v", t.Describe().Name, k, err)
		return decision, ok
	}
	again, err := t.Judge(view, now)
	if first, second := text(decision), text(again); err != nil || !bytes.Equal(first, second) {
		t.guard.Breaks("I13", "%s %v decided two things on one view (%v):\n%s\n%s", t.Describe().Name, k, err, first, second)
	}
	return decision, ok
}

func text(d reconcile.Decision) []byte {
	turn := events.Turn{Because: d.Because, Commands: append([]events.Command(nil), d.Commands...), WakeAt: &d.WakeAt}
	turn.Pack()
	out, err := json.Marshal(turn)
	if err != nil {
		panic(fmt.Sprintf("a decision cannot be written down: %v", err))
	}
	return out
}

const (
	// latest is for how long reconcilers may leave a key undecided while nothing delays them.
	latest = 10 * time.Minute
)

// chargeFor charges reconcilers with the time for which a wanted key was undecided while nothing
// else could happen, every process ran, and no view was held back.
func (w *World) chargeFor(d time.Duration) {
	if !w.until.IsZero() || slices.ContainsFunc(w.Replicas, func(r *replica) bool { return r.stalled() }) ||
		slices.ContainsFunc(w.Writers, func(x *writer) bool { return x.stalled() }) {
		return
	}
	for _, r := range w.Replicas {
		for _, engine := range r.engines {
			w.undecided(engine, d)
		}
	}
}

// undecided charges an engine for the keys that changes have asked for and that it has not
// decided about.
func (w *World) undecided(engine *replicaEngine, d time.Duration) {
	for key, wants := range engine.wanted {
		wants.late += d
		w.Counts.Latest = max(w.Counts.Latest, wants.late)
		if wants.late > latest {
			w.Guard.Breaks("I7", "%s has left %v undecided for %v", engine.Name(), key, wants.late)
		}
	}
}

// farApart is the difference of clocks that shows that one was set; smaller ones come from
// their start.
const farApart = 5 * time.Minute

// clocksDiffer reports whether the clocks of reconcilers have been set so far apart that a
// deadline has passed by one and not by another.
func (w *World) clocksDiffer() bool {
	first := w.Replicas[0].Skew
	return slices.ContainsFunc(w.Replicas, func(r *replica) bool { return (r.Skew - first).Abs() >= farApart })
}
