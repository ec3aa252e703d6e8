package world

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shard"
	"github.com/millrace/millrace/services/reconcilers/shell"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/streams"
)

// replica is one process of the reconcilers: a memory, a follower for each kind, and an engine
// for each controller. To kill it, a world forgets it.
type replica struct {
	process
	memory    *cache.Cache
	Followers []*follower
	engines   []*replicaEngine
	share     shard.Set // of the keys of every controller
	folding   bool
}

func newReplica(w *World) *replica {
	r := &replica{process: process{world: w, Skew: w.skew()}, memory: cache.New()}
	for _, k := range w.Served {
		r.memory.Follow(k)
	}
	for _, c := range w.controllers {
		d := newEngine(r, c)
		d.Own(0)
		r.engines = append(r.engines, d)
	}
	for _, k := range w.Served {
		f := &follower{replica: r, Stream: w.Bus.Kinds[k.Name]}
		for _, d := range r.engines {
			if slices.Contains(d.reads, k.Name) {
				f.engines = append(f.engines, d)
				d.Shut(k.Name)
			}
		}
		f.goal, f.breaks = f.Stream.End(), f.Stream.Breaks
		f.folded = f.Stream.Begin(f.goal) - 1
		r.memory.Dealt(k.Name, f.goal)
		r.Followers = append(r.Followers, f)
	}
	r.Advance()
	return r
}

func (r *replica) Advance() {
	if r.stalled() {
		return
	}
	for _, d := range r.engines {
		d.Advance(r.clock())
	}
}

// hear tells the engines which turns the writers have in flight.
func (r *replica) hear() {
	if r.stalled() {
		return
	}
	for _, x := range r.world.Writers {
		if x.stalled() {
			continue
		}
		said := x.says()
		for _, d := range r.engines {
			d.Heartbeat(said)
		}
	}
}

// behind reports whether the replica has not yet read all streams to their ends.
func (r *replica) behind() bool {
	return slices.ContainsFunc(r.Followers, func(f *follower) bool { return f.folded < f.Stream.End() })
}

// awake reports whether a replica has caught up, and can work.
func (r *replica) awake() bool {
	return !r.stalled() && !slices.ContainsFunc(r.engines, func(d *replicaEngine) bool { return !d.HasOpened() })
}

// fair is the replica's share of the keys, as far as it knows the others: it shares with the
// replicas that are awake, or while none is, with all that run.
func (r *replica) fair() (share shard.Set) {
	var there []*replica
	for _, fit := range []func(*replica) bool{(*replica).awake, func(o *replica) bool { return !o.stalled() }} {
		if there == nil {
			there = slices.DeleteFunc(slices.Clone(r.world.Replicas), func(o *replica) bool { return !fit(o) })
		}
	}
	for n := range shard.Count {
		if len(there) > 0 && there[n%len(there)] == r {
			share = share.With(n)
		}
	}
	return share
}

// sharing is the step in which a replica learns its new share of the keys. Until then two
// replicas may decide about a key, or none.
type sharing struct{ *replica }

func (r sharing) Ready() bool { return !r.stalled() && r.share != r.fair() }

func (r sharing) act() {
	r.share = r.fair()
	for _, d := range r.engines {
		d.own(r.share)
	}
}

// follower folds the log of one kind into its replica's memory.
type follower struct {
	replica *replica
	Stream  *streams.Stream
	engines []*replicaEngine // that read the kind
	folded  uint64
	goal    uint64 // the end of the stream when the follower began
	marked  bool   // a mark has shown that the kind is complete
	opened  bool
	breaks  int
	asked   time.Time // when watchers were last asked to compare again
	// old is the end of the follower's outdated copy of the stream; 0: it reads the stream
	// itself.
	old  uint64
	late time.Duration // for how long it has run without reading what the stream has
	// Holds are messages that it must not see before the log has something newer about their
	// objects.
	Holds []*Hold
}

// Hold is a message that a follower does not see.
type Hold struct {
	Sequence uint64
	since    time.Time // when the follower reached it; zero: not yet
}

// reach is the sequence up to which the follower can read now.
func (f *follower) reach() uint64 {
	end := f.Stream.End()
	if f.old > 0 {
		end = min(end, f.old)
	}
	now := f.replica.world.Now
	for _, h := range f.Holds {
		if h.Sequence <= f.folded || h.Sequence > end || !f.Stream.Current(f.Stream.Log[h.Sequence-1]) {
			continue
		}
		if h.since.IsZero() {
			h.since = now
		}
		if now.Sub(h.since) < Patience {
			end = h.Sequence - 1
		}
	}
	return end
}

func (f *follower) Ready() bool {
	return !f.replica.stalled() && (f.breaks != f.Stream.Breaks || f.folded < f.reach() || f.behind() && !f.asks().After(f.replica.world.Now))
}

// behind reports whether the follower waits until a watcher says again what the stream has lost.
func (f *follower) behind() bool {
	return !f.opened && f.folded >= f.goal && f.replica.memory.BehindKnown(f.Stream.Kind.Name)
}

// asks is when it next asks the watchers.
func (f *follower) asks() time.Time { return f.asked.Add(time.Second) }

// act folds a few messages.
func (f *follower) act() {
	kind := f.Stream.Kind.Name
	if f.breaks != f.Stream.Breaks {
		f.forget()
		return
	}
	if f.folded >= f.reach() {
		f.asked = f.replica.world.Now
		f.replica.world.ask(f.Stream)
		return
	}
	batch := f.Stream.Read(f.folded, f.reach(), 1+f.replica.world.Roll(8))
	f.folded += uint64(len(batch))
	if len(batch) > 0 {
		f.replica.folding = true
		f.replica.memory.Fold(kind, batch)
		f.replica.folding = false
		for _, m := range batch {
			f.marked = f.marked || m.Get(events.HeaderOp) == string(events.Mark)
		}
		for _, d := range f.engines {
			for _, o := range d.early {
				d.Outcome(0, o)
			}
			d.early = nil
			d.Folded(kind)
		}
	}
	f.open()
}

// open opens the engines as soon as the memory is complete.
func (f *follower) open() {
	if f.opened || f.folded < f.goal || !f.marked || f.behind() {
		return
	}
	f.opened = true
	for _, d := range f.engines {
		d.Open(f.Stream.Kind.Name)
	}
}

// forget drops the memory of a stream that was recreated or has lost its end, and begins
// anew.
func (f *follower) forget() {
	kind := f.Stream.Kind.Name
	for _, d := range f.engines {
		d.Shut(kind)
	}
	keys := f.replica.memory.Forget(kind)
	for _, d := range f.engines {
		d.Forgot(kind, keys[d.Name()])
	}
	f.goal, f.marked, f.opened = f.Stream.End(), false, false
	f.folded = f.Stream.Begin(f.goal) - 1
	f.breaks, f.old, f.Holds = f.Stream.Breaks, 0, nil
	f.replica.memory.Dealt(kind, f.goal)
}

// replicaEngine is an engine with its connection to the bus: requests that the bus has not carried
// out, and answers that have not arrived.
type replicaEngine struct {
	*engine.Engine
	replica  *replica
	book     *streams.Book
	reads    []kinds.Name
	requests []func() (answer func())
	answers  []func()
	looks    *cluster.Looks
	heard    int // outcomes of the stream that it has received
	fired    int // wakes of the followed stream
	breaks   int
	losses   []string // streams whose losses it has not noticed yet
	// connection counts its broken connections to the bus.
	connection int
	// wanted are the keys that changes have asked for since the last decisions about them.
	wanted map[events.Key]*wanted
	mapped int
	// early are outcomes that it takes its turns to have before they have been carried out.
	early []events.Outcome
}

// wanted is how long a key has waited while every process ran.
type wanted struct{ late time.Duration }

func newEngine(r *replica, c reconcile.Any) *replicaEngine {
	w, name := r.world, c.Describe().Name
	d := &replicaEngine{replica: r, book: w.Bus.Books[name], reads: reads(c, w.Served)}
	d.heard, d.fired, d.breaks = len(d.book.Outcomes), len(d.book.Fired), d.book.Breaks
	d.wanted = map[events.Key]*wanted{}
	watched := w.watched(c, d)
	d.looks = watched.looks
	r.memory.Register(watched.Describe())
	d.Engine = engine.New(watched, r.memory, d, engine.Settings{Code: "sim", Pace: w.options.Pace}, r.clock())
	return d
}

// own tells the engine which keys it owns. It need not decide about the others.
func (d *replicaEngine) own(share shard.Set) {
	for key := range d.wanted {
		if !share.Has(shard.Of(key)) {
			delete(d.wanted, key)
		}
	}
	d.Own(share)
}

// maps records the keys that a change asks for, and returns those that the engine is told.
func (d *replicaEngine) maps(keys []events.Key) []events.Key {
	if !d.replica.folding || !d.HasOpened() {
		return keys // an engine that opens asks about every key
	}
	for _, key := range keys {
		if d.replica.share.Has(shard.Of(key)) && d.wanted[key] == nil {
			d.wanted[key] = &wanted{}
		}
	}
	if d.mapped++; d.replica.world.options.Cheat == Deaf && d.mapped%5 == 0 {
		return nil
	}
	return keys
}

func reads(c reconcile.Any, served []kinds.Kind) []kinds.Name {
	var out []kinds.Name
	for _, in := range c.Describe().Inputs {
		if !in.Every {
			out = append(out, in.Kind.Name)
			continue
		}
		for _, k := range served {
			out = append(out, k.Name)
		}
	}
	return out
}

// Store implements engine.IO.
func (d *replicaEngine) Store(t events.Turn, expect uint64) {
	seen, connection := d.looks.Of(t), d.connection
	d.request(func() func() {
		w := d.replica.world
		sequence, err := uint64(0), errHiccup
		if connection == d.connection {
			if err = shell.CheckAge(t, d.replica.clock()); err == nil {
				sequence, err = d.book.Store(t, expect)
			}
		}
		if err == nil {
			w.stored(d, t, sequence, seen)
		}
		if w.hiccup() {
			sequence, err = 0, errHiccup
		}
		return func() {
			d.Stored(t.Key, t.Lane, sequence, err)
			if err == nil && w.options.Cheat == HalfFence {
				d.early = append(d.early, events.Outcome{Controller: t.Controller, Key: t.Key, Lane: t.Lane, Turn: sequence})
			}
		}
	})
}

// Recall implements engine.IO.
func (d *replicaEngine) Recall(key events.Key, of events.Lane) {
	d.request(func() func() {
		w := d.replica.world
		sequence, turn, outcome := d.book.Last(streams.Lane{Key: key, Lane: of})
		if w.options.Cheat == MemoryFence && sequence > 0 {
			turn, outcome = nil, &events.Outcome{Controller: d.Name(), Key: key, Lane: of, Turn: sequence}
		}
		err := error(nil)
		if w.hiccup() {
			err = errHiccup
		}
		return func() {
			d.Recalled(key, of, engine.Past{Sequence: sequence, Turn: turn, Outcome: outcome}, err)
		}
	})
}

// Schedule implements engine.IO.
func (d *replicaEngine) Schedule(wake events.Wake) {
	d.request(func() func() {
		w := d.replica.world
		w.Bus.Schedule(wake)
		err := error(nil)
		if w.hiccup() {
			err = errHiccup
		}
		return func() { d.Scheduled(wake.Key, wake.At, err) }
	})
}

// Reach implements engine.IO.
func (d *replicaEngine) Reach(kind kinds.Name) {
	d.request(func() func() {
		end := d.replica.world.Bus.Kinds[kind].End()
		return func() { d.Reached(kind, end, nil) }
	})
}

func (d *replicaEngine) request(r func() func()) { d.requests = append(d.requests, r) }

// The steps of an engine, each of which may happen when it is ready.
type (
	inspecting struct{ *replicaEngine } // notices that a stream has lost messages
	hearing    struct{ *replicaEngine } // receives the next outcome of the stream
	waking     struct{ *replicaEngine } // receives the next wake
	turning    struct{ *replicaEngine } // makes a turn
	asking     struct{ *replicaEngine } // has a request reach the bus
	answering  struct{ *replicaEngine } // receives the answer to a request
)

func (d *replicaEngine) actors() []actor {
	return []actor{inspecting{d}, hearing{d}, waking{d}, turning{d}, asking{d}, answering{d}}
}

func (d inspecting) Ready() bool { return len(d.losses) > 0 && !d.replica.stalled() }

func (d inspecting) act() {
	stream := d.losses[0]
	d.losses = d.losses[1:]
	d.Lost(stream)
}

func (d hearing) Ready() bool {
	return (d.heard < len(d.book.Outcomes) || d.breaks != d.book.Breaks) && !d.replica.stalled()
}

func (d hearing) act() {
	if d.breaks != d.book.Breaks {
		d.breaks, d.heard = d.book.Breaks, len(d.book.Outcomes)
		d.Invalidate()
		return
	}
	d.heard++
	d.Outcome(uint64(d.heard), d.book.Outcomes[d.heard-1])
}

func (d waking) Ready() bool { return d.fired < len(d.book.Fired) && !d.replica.stalled() }

func (d waking) act() {
	d.fired++
	d.Wake(uint64(d.fired), d.book.Fired[d.fired-1])
}

func (d turning) Ready() bool { return d.Busy() && !d.replica.stalled() }

func (d turning) act() { d.Step() }

func (d asking) Ready() bool { return len(d.requests) > 0 && !d.replica.stalled() }

func (d asking) act() {
	i := d.replica.world.Roll(len(d.requests))
	carry := d.requests[i]
	d.requests = slices.Delete(d.requests, i, i+1)
	d.answers = append(d.answers, carry())
}

func (d answering) Ready() bool { return len(d.answers) > 0 && !d.replica.stalled() }

func (d answering) act() {
	i := d.replica.world.Roll(len(d.answers))
	tell := d.answers[i]
	d.answers = slices.Delete(d.answers, i, i+1)
	tell()
}

// next is the earliest timer of the replica, by the world's clock.
func (r *replica) next() (at time.Time, ok bool) {
	for _, d := range r.engines {
		if t, has := d.Next(); has && (!ok || t.Add(-r.Skew).Before(at)) {
			at, ok = t.Add(-r.Skew), true
		}
	}
	return at, ok
}
