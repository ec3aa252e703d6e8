// Package engine decides when to ask a controller about a key, and stores what it decides. Controllers
// decide; the engine deals with order, time and failure.
//
// Changes ask for turns of keys, the engine stores the turns, and it decides about a key only when
// everything that the key's last turn did has come back (the fence).
//
// An [Engine] has no goroutine, clock or I/O of its own. Its caller tells it what happened, and
// the engine requests work through its [IO], so that the live loop (package shell) and a simulation
// with virtual time run the same code.
//
// Every replica folds every change, and decides about the keys that it owns ([Engine.Own]). No
// store keeps which changes asked for a key: a replica that starts, or gains keys, asks about
// all of them, as an informer's first list does.
//
// A controller may move with a Lease between Millrace and kube-controller-manager. Then the engine owns
// no keys until a writer holds the Lease, and folds all changes meanwhile ([Settings].Leased).
//
// An engine decides nothing before its view is complete. It starts shut for each kind that its
// controller names (a controller that reads every kind: until the kinds have been discovered).
// It opens when the kind has been folded as far as its log reached at the start, and the
// watcher has reported once that it has listed the whole kind. For the same reason, the
// controller's declaration says which effects the engine awaits, never the set of kinds that
// the memory follows by now.
package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shard"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
)

// Engine is the engine of one controller: a state machine for a single goroutine. Its caller
// reports events through its methods, [Engine.Step] makes one turn, and the engine requests I/O
// through its IO.
//
// Two rules keep it safe beside other replicas. It stores a turn with the sequence of the last
// turn of the key and lane that it knows, so that the bus refuses one of two engines. And it
// decides a turn that acts only when the last one has its outcome, and the memory has seen
// everything that was applied.
type Engine struct {
	name       string
	controller reconcile.Any
	described  reconcile.Description
	named      map[kinds.Name]bool // the kinds that the controller names as its inputs
	every      bool                // the controller reads all kinds
	gauges     map[string]bool     // the names of the metrics that are gauges
	cache      *cache.Cache
	io         IO
	settings   Settings

	now          time.Time
	entries      map[events.Key]*entry
	queue        workqueue.Queue[*entry]
	timers       workqueue.Timers
	awaiting     map[kinds.Name][]*entry
	rechecked    map[kinds.Name]uint64 // by kind: deltas folded when its awaiting keys were last checked
	reaching     map[kinds.Name]bool
	shut         map[kinds.Name]bool
	epochs       map[kinds.Name]uint64 // of the kinds that were opened
	listingEpoch map[kinds.Name]bool   // shut because the kind is being listed in a new epoch
	share        shard.Set             // the keys that this engine decides about
	lease        lease
	taken        map[kinds.Name]uint64 // by kind: the sequence up to which changes were mapped to keys
	// inconsistent are keys with commands that wait for a consistent snapshot.
	inconsistent []*entry
	waitRecord
	skew          epochSkew // the newest epoch that kinds had to catch up with
	askedAll      bool
	storing       int
	discoveries   int                  // discoveries begun
	discovered    int                  // the newest discovery that has ended
	writersSeen   time.Time            // when a writer's heartbeat last came
	inFlight      map[uint64]time.Time // by turn: when a writer last reported it in flight
	writerReached uint64               // the newest turn in flight at a writer that is full
	writerFullAt  time.Time            // when that writer reported it
	tally         Tally
	parked        map[events.Key]*entry
	suspected     map[kinds.Name]time.Time // when the watchers were asked to compare
}

// Tally counts what an engine did. All but Depth and Parked only grow.
type Tally struct {
	Depth, Parked   int
	Adds, Retries   int
	Nothing         int // turns that decided nothing
	Writes, Reports int // turns stored
	Overtaken       int
	Repeats         int // turns stored again because they had no outcome
	Shut            int // times that the fence held a turn back
	Broken          int // turns and mappings that panicked or broke a rule
}

// entry is the engine's state of one key.
type entry struct {
	key   events.Key
	dirty bool // wants a turn
	workqueue.Place
	cache.Causes
	since time.Time // when the bus stored the oldest change that waits for a turn
	first bool      // a turn was asked for without a known cause: its turn may begin a trace

	round                 *round
	missed                bool // the key was to be looked at during the round
	mustRecall            bool // recall the key even if it wants nothing: a stream has lost messages
	recalling             int  // recalls without an answer
	recallFailed          bool
	unsettled             bool // a lane was unsettled when the recall began
	known                 bool // both lanes have been recalled from the streams
	write, status         lane
	wrote                 string        // the version that the newest write of the key's own object made
	listed                []kinds.Name  // the kinds whose awaiting list has this entry
	effectCheckSet        bool          // a timer is set that checks effects that have not come back
	lastWrite, lastReport time.Time     // when this engine last stored a turn that acts, and a report
	passedOver            time.Time     // since when reports have waited while writes went ahead; zero: none has
	took                  time.Duration // how long the last report took until its outcome was known
	unsure                time.Time     // when a report last had to wait for the outcome of a write

	wake        time.Time // the moment of the scheduled wake
	requeueTime time.Time // the earliest timer that looks at the key again
	retries     int       // because of Decision.Retry or errors of the bus
	until       time.Time // no turn before this: the bus failed, or the key broke
	broken      int       // attempts in a row that broke
	parking     string    // why the key is being parked; empty: it is not
	parked      *Parked
	message     bool   // the key is the name of an object that cannot be decoded or mapped
	version     string // of that object
}

// round is a turn whose stores and wake are in flight.
type round struct {
	left    int // answers that have not come
	failed  bool
	whole   bool            // the fence held back no part of the decision
	last    events.Trigger  // the newest trigger of a whole round
	waiting []cache.Backlog // the changes that a whole round is the turn of
	first   bool            // the entry's first, of a whole round
}

// New makes an engine. The memory must know the controller ([cache.Cache.Register]).
func New(controller reconcile.Any, c *cache.Cache, door IO, settings Settings, now time.Time) *Engine {
	described := controller.Describe()
	d := &Engine{
		name: described.Name, controller: controller, described: described,
		cache: c, io: door, settings: settings.filled(), now: now,
		entries: map[events.Key]*entry{}, share: shard.All, taken: map[kinds.Name]uint64{},
		awaiting: map[kinds.Name][]*entry{}, rechecked: map[kinds.Name]uint64{}, reaching: map[kinds.Name]bool{}, shut: map[kinds.Name]bool{},
		parked: map[events.Key]*entry{}, named: map[kinds.Name]bool{}, inFlight: map[uint64]time.Time{},
		suspected: map[kinds.Name]time.Time{},
		epochs:    map[kinds.Name]uint64{}, listingEpoch: map[kinds.Name]bool{},
		waitRecord: waitRecord{pending: map[*entry]time.Time{}, forgotten: map[kinds.Name]bool{}},
		gauges:     map[string]bool{},
	}
	if settings.Leased {
		d.share = 0
	}
	d.lease.share = shard.All
	for _, m := range described.Metrics {
		if m.Sort == reconcile.Gauge || m.Sort == reconcile.Mark {
			d.gauges[m.Name] = true
		}
	}
	for _, in := range described.Inputs {
		if in.Every {
			d.every = true
			continue
		}
		d.named[in.Kind.Name] = true
	}
	return d
}

// reads reports whether the controller sees changes of a kind. It rests on what the controller
// declares, never on the kinds that the memory follows by now: an outcome may arrive before its
// kind is followed.
func (d *Engine) reads(kind kinds.Name) bool { return kind != "" && (d.every || d.named[kind]) }

// Name is the controller's.
func (d *Engine) Name() string { return d.name }

// Description is the description of the controller. It never changes.
func (d *Engine) Description() reconcile.Description { return d.described }

// Ask requests a turn of each key that the engine owns, after the keys that changes ask for.
func (d *Engine) Ask(keys ...events.Key) {
	for _, k := range keys {
		if d.owns(k) {
			e := d.entry(k)
			e.first = true
			d.enqueue(e, workqueue.WhenIdle)
		}
	}
}

// AskAll requests a turn of every key that an object in the memory maps to.
//
// Upstream: the first list of an informer enqueues everything once.
func (d *Engine) AskAll() { d.askAbout() }

// askAbout requests a turn of the keys that the objects of some kinds map to (of all kinds if
// none is named), and parks the objects that cannot be decoded or mapped to keys.
func (d *Engine) askAbout(some ...kinds.Name) {
	keys, unmapped := d.keys(some...)
	d.Ask(keys...)
	d.takeChanges(cache.Changes{Unmapped: unmapped})
}

// keys are those of [cache.Snapshot.AllKeys].
func (d *Engine) keys(some ...kinds.Name) (keys []events.Key, unmapped []cache.Unmapped) {
	d.cache.View(d.name, nil, func(s cache.Snapshot) { keys, unmapped = s.AllKeys(some...) })
	return keys, unmapped
}

// Advance moves the engine's clock, never back, and fires the timers that are due.
func (d *Engine) Advance(now time.Time) {
	if now.After(d.now) {
		d.now = now
	}
	for {
		fire, ok := d.timers.Due(d.now)
		if !ok {
			return
		}
		fire()
	}
}

// Next is when the next timer fires; ok is false when none is set.
func (d *Engine) Next() (at time.Time, ok bool) {
	return d.timers.Next()
}

// Busy reports whether Step has something to do.
func (d *Engine) Busy() bool { return len(d.shut) == 0 && d.queue.Len() > 0 }

// Step looks at one key, and makes its turn if it may have one. It returns false when the
// engine is shut or no key is queued.
func (d *Engine) Step() bool {
	if len(d.shut) > 0 {
		return false
	}
	e := d.queue.Pop()
	if e == nil {
		return false
	}
	if d.settings.Waited != nil {
		d.settings.Waited(d.now.Sub(e.QueuedAt))
	}
	d.takeTurn(e)
	return true
}

// Storing is the number of stores, schedules and recalls in flight.
func (d *Engine) Storing() int { return d.storing }

// Tally is what the engine has done so far.
func (d *Engine) Tally() Tally {
	t := d.tally
	t.Depth, t.Parked = d.queue.Len(), len(d.parked)
	return t
}

// own is the object that a key names. A key without a kind names one of the kind that the
// controller owns.
func (d *Engine) own(key events.Key) events.Ref {
	ref := events.Ref(key)
	if d.described.Owns != nil && key.Kind == "" {
		ref.Kind = d.described.Owns.Name
	}
	return ref
}

func (d *Engine) entry(key events.Key) *entry {
	e, ok := d.entries[key]
	if !ok {
		e = &entry{key: key}
		d.entries[key] = e
	}
	return e
}

// sorted is every entry in the order of their keys.
func (d *Engine) sorted() []*entry {
	return slices.SortedFunc(maps.Values(d.entries), func(a, b *entry) int {
		return events.Ref(a.key).Compare(events.Ref(b.key))
	})
}

// enqueue makes a key dirty and queues it, unless another replica owns it.
func (d *Engine) enqueue(e *entry, as workqueue.Rank) {
	if d.entries[e.key] != e || !d.owns(e.key) {
		return
	}
	if !e.wants() {
		delete(d.pending, e) // since when it wanted what it has had
	}
	e.dirty = true
	d.markPending(e)
	if d.queue.Push(e, d.now, as) {
		d.tally.Adds++
	}
}

// requeue queues a dirty key again, because something that it waited for may have happened.
func (d *Engine) requeue(e *entry) { d.requeueAs(e, workqueue.AfterChange) }

func (d *Engine) requeueAs(e *entry, as workqueue.Rank) {
	if e.dirty && d.entries[e.key] == e {
		d.queue.Push(e, d.now, as)
	}
}

// requeueAt sets a timer that looks at a key again if it is still dirty then. A pending earlier
// requeueAt makes a later one unnecessary, because every look sets the alarms that it needs.
func (d *Engine) requeueAt(e *entry, at time.Time) {
	if !e.requeueTime.IsZero() && !at.Before(e.requeueTime) {
		return
	}
	e.requeueTime = at
	d.timers.Set(at, func() {
		if e.requeueTime.Equal(at) {
			e.requeueTime = time.Time{}
		}
		d.requeue(e)
	})
}

func (d *Engine) position(kind kinds.Name) uint64 { return d.cache.Position(kind) }
