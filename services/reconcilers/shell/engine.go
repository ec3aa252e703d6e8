package shell

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Engine is the engine of one controller. It is a state machine for one goroutine:
// what happens is said to it through its methods, [Engine.Step] makes one turn,
// and what it wants done it says through its Door.
//
// Two rules keep it safe beside other replicas. A turn is stored with the
// sequence of the last turn of its key and lane that this engine knows, so that of
// two engines one is refused. And a turn that acts is decided only when the last
// one has its outcome and everything that was applied has been seen again.
type Engine struct {
	name       string
	controller reconcile.Any
	described  reconcile.Description
	named      map[kinds.Name]bool // the kinds that it names as its inputs
	every      bool                // it reads all kinds
	gauges     map[string]bool     // those of its metrics that are
	memory     *Memory
	door       Door
	settings   Settings

	now       time.Time
	entries   map[events.Key]*entry
	queue     queue
	timers    timers
	awaiting  map[kinds.Name][]*entry
	rechecked map[kinds.Name]uint64 // deltas folded of a kind when its awaiting keys were last looked at
	reaching  map[kinds.Name]bool
	shut      map[kinds.Name]bool
	epochs    map[kinds.Name]uint64 // of the kinds that were opened
	turning   map[kinds.Name]bool   // shut because a new epoch is being told
	share     Share
	taken     map[kinds.Name]uint64 // up to where it was told what the changes of each kind ask for
	// inconsistent are keys that would act and wait for a view of one moment.
	inconsistent []*entry
	standing
	skew        epochSkew // the newest epoch for which kinds have had to be waited
	askedAll    bool
	storing     int
	discoveries int                  // begun
	discovered  int                  // the newest that has ended
	attended    time.Time            // when a writer was last heard
	inFlight    map[uint64]time.Time // when a writer last had each turn in flight
	reached     uint64               // the newest turn of a writer that is given no more
	crowded     time.Time            // when that was said
	tally       Tally
	parked      map[events.Key]*entry
	suspected   map[kinds.Name]time.Time // when the watchers were asked to compare
}

// Tally counts what an engine did. All but Depth and Parked only grow.
type Tally struct {
	Depth, Parked int
	Adds, Retries int
	Nothing       int // turns that decided nothing
	Acts, Tells   int // turns stored
	Overtaken     int
	Repeats       int // turns stored again because no outcome came
	Shut          int // times that the fence held something back
	Broken        int // turns and mappings that panicked or broke a rule
}

// entry is what an engine knows of a key.
type entry struct {
	key      events.Key
	dirty    bool // wants a turn
	queued   bool
	rank     rank // in the queue
	queuedAt time.Time
	causes
	since time.Time // when the bus had the oldest change that waits for a turn
	first bool      // some of what asks for a turn is nothing that is known: what comes of it may begin a trace

	round        *round
	missed       bool // something asked for a look during the round
	inquire      bool // it is recalled even if it wants nothing: the streams have lost something
	recalling    int  // answers that are still to come
	recallFailed bool
	unsettled    bool // a lane was when the recall began
	known        bool // both lanes are known from the streams
	act, tell    lane
	wrote        string        // the version of the key's own object that came of the newest such write
	listed       []kinds.Name  // the kinds in whose awaiting list it is
	worried      bool          // a timer looks after effects that stay away
	acted, told  time.Time     // when this engine last stored a turn that acts, and a report
	passedOver   time.Time     // since when reports have waited for what was done ahead of them; zero: none has
	took         time.Duration // the last report, until its outcome was known
	unsure       time.Time     // when a report last had to wait until it is known what became of an act

	wake    time.Time // the moment that is scheduled
	alarm   time.Time // the earliest timer that looks at it again
	retries int       // of Decision.Retry and of the bus
	until   time.Time // no turn before: the bus or the key is broken
	broken  int       // attempts in a row that broke
	parking string    // the reason for which it is being parked
	parked  *Parked
	message bool   // no key, but the name of an object that cannot be read or mapped
	version string // of that object
}

// round is a turn whose consequences are being stored.
type round struct {
	left    int // answers that are still to come
	failed  bool
	whole   bool           // no part of the decision was held back
	last    events.Trigger // the newest one of a whole round
	waiting []Backlog      // what a whole round is the turn of
	first   bool           // the entry's, of a whole round
}

// NewEngine opens an engine. The memory must know the controller ([Memory.Register]).
func NewEngine(controller reconcile.Any, memory *Memory, door Door, settings Settings, now time.Time) *Engine {
	described := controller.Describe()
	d := &Engine{
		name: described.Name, controller: controller, described: described,
		memory: memory, door: door, settings: settings.filled(), now: now,
		entries: map[events.Key]*entry{}, share: Everything, taken: map[kinds.Name]uint64{},
		awaiting: map[kinds.Name][]*entry{}, rechecked: map[kinds.Name]uint64{}, reaching: map[kinds.Name]bool{}, shut: map[kinds.Name]bool{},
		parked: map[events.Key]*entry{}, named: map[kinds.Name]bool{}, inFlight: map[uint64]time.Time{},
		suspected: map[kinds.Name]time.Time{},
		epochs:    map[kinds.Name]uint64{}, turning: map[kinds.Name]bool{},
		standing: standing{pending: map[*entry]time.Time{}, forgotten: map[kinds.Name]bool{}},
		gauges:   map[string]bool{},
	}
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

// reads tells whether what happens to a kind comes back to the controller. It
// rests on what the controller declares, and never on what the memory follows
// by now: an outcome may be here before its kind.
func (d *Engine) reads(kind kinds.Name) bool { return kind != "" && (d.every || d.named[kind]) }

// Name is the controller's.
func (d *Engine) Name() string { return d.name }

// Shut says that a kind is not folded far enough to decide on; nothing is
// decided until [Engine.Open] says otherwise.
func (d *Engine) Shut(kind kinds.Name) {
	if len(d.shut) == 0 {
		d.shutSince = d.now
	}
	d.shut[kind] = true
	delete(d.turning, kind)
}

// Open says that a kind is folded far enough. A kind that was not shut may be
// opened.
//
// When the last of the kinds that were shut is open, every key of the memory is
// asked once: it is not known what happened before this engine was there. A kind that is
// found or forgotten later has its keys asked when it is opened.
func (d *Engine) Open(kind kinds.Name) {
	_, shut := d.shut[kind]
	if delete(d.shut, kind); shut && len(d.shut) == 0 {
		d.freedAt = d.now
	}
	told := d.turning[kind] // while a new epoch was told, changes asked for turns
	delete(d.turning, kind)
	delete(d.forgotten, kind)
	d.epochs[kind], _ = d.memory.epoch(kind)
	for _, e := range d.awaiting[kind] {
		d.date(&e.act)
		d.date(&e.tell)
	}
	d.recheck(kind)
	d.Folded(kind)
	if shut && !told && d.askedAll {
		d.askAbout(kind) // what was there before its log is followed comes as no change
	}
	if shut && len(d.shut) == 0 && !d.askedAll {
		d.askedAll = true
		d.AskAll()
	}
}

// Awake tells whether the engine is open, or has been: it has seen what there is.
func (d *Engine) Awake() bool { return d.askedAll || len(d.shut) == 0 }

// turnOver shuts the engine while a new epoch of a kind is being told: the API
// server was restored to an earlier time, and what of the old epoch has not been
// said again may never have been.
func (d *Engine) turnOver(kind kinds.Name) {
	if !d.reads(kind) {
		return
	}
	epoch, told := d.memory.epoch(kind)
	if d.Awake() {
		d.newEpoch(epoch)
	}
	switch {
	case d.turning[kind] && told:
		d.Open(kind)
	case !d.shut[kind] && !told && epoch > d.epochs[kind]:
		d.Shut(kind)
		d.turning[kind] = true
	case !d.shut[kind]:
		d.epochs[kind] = epoch
	}
}

// unfound stands for the kinds that no discovery has found as yet.
const unfound kinds.Name = "*"

// Discover says that the kinds that have streams are going to be looked up.
func (d *Engine) Discover() { d.discoveries++ }

// Discovered says that the discovery begun last has ended, and that the engine has been
// shut for every kind that it found and that was not followed before. Effects on
// what is still unknown then cannot come back, and are not waited for.
func (d *Engine) Discovered() {
	d.discovered = d.discoveries
	for _, kind := range slices.Sorted(maps.Keys(d.awaiting)) {
		if !d.named[kind] {
			d.recheck(kind)
		}
	}
	d.Open(unfound)
}

// Forgot says that a kind's stream was made anew and is being folded from its
// start. keys are those that the forgotten objects made ([Memory.Forget]).
func (d *Engine) Forgot(kind kinds.Name, keys []events.Key) {
	d.Shut(kind)
	d.forgotten[kind] = true
	for _, e := range d.sorted() {
		settled := e.act.settled() && e.tell.settled()
		// What had come back has been forgotten with the kind: the fence has to
		// wait for it anew, from what the streams know.
		e.act.outcome, e.tell.outcome = 0, 0
		if e.doubt(); !settled {
			// What it waited for may never be told again: it may be gone by now.
			e.inquire = true
			d.demand(e, idly)
		}
	}
	d.Ask(keys...)
}

// Ask wants a turn of each key that the engine owns, after those that changes ask for.
func (d *Engine) Ask(keys ...events.Key) {
	for _, k := range keys {
		if d.owns(k) {
			e := d.entry(k)
			e.first = true
			d.demand(e, idly)
		}
	}
}

// AskAll wants a turn of every key that an object in the memory makes.
//
// Upstream: the first list of an informer enqueues everything once.
func (d *Engine) AskAll() { d.askAbout() }

// askAbout wants a turn of the keys that the objects of some kinds make, of all if none is named,
// and sets those aside of which no key can be told.
func (d *Engine) askAbout(some ...kinds.Name) {
	keys, unread := d.keys(some...)
	d.Ask(keys...)
	d.take(news{unmapped: unread})
}

// keys are those that the objects in the memory make, of all kinds or of some.
func (d *Engine) keys(some ...kinds.Name) (keys []events.Key, unread []unmapped) {
	var set keySet
	d.memory.look(d.name, nil, func(s scene) {
		if len(some) == 0 {
			some = slices.Sorted(maps.Keys(s.memory.kinds))
		}
		for _, at := range some {
			k, ok := s.kind(at)
			if !ok || !s.reader.maps(at) {
				continue
			}
			for h := range k.all.Scan {
				keys, err := s.reader.keys(s, change{ref: h.ref, now: h.object})
				if set.add(keys...); err != nil {
					unread = append(unread, unmapped{h.ref, h.version, err.Error()})
				}
			}
			for n, damage := range k.damaged {
				unread = append(unread, unmapped{events.Ref{Kind: at, Namespace: n.namespace, Name: n.name}, damage.version, damage.reason})
			}
		}
	})
	slices.SortFunc(unread, func(a, b unmapped) int { return compareRefs(a.ref, b.ref) })
	return set.keys, unread
}

// Advance moves the engine's clock; timers whose time has come fire.
func (d *Engine) Advance(now time.Time) {
	if now.After(d.now) {
		d.now = now
	}
	for {
		t, ok := d.timers.due(d.now)
		if !ok {
			return
		}
		t.fire()
	}
}

// Next is when the next timer fires; ok is false when none is set.
func (d *Engine) Next() (at time.Time, ok bool) {
	if len(d.timers.list) == 0 {
		return time.Time{}, false
	}
	return d.timers.list[0].at, true
}

// Busy tells whether Step has something to do.
func (d *Engine) Busy() bool { return len(d.shut) == 0 && d.queue.depth > 0 }

// Step looks at one key and makes its turn if it may have one. It gives false
// when no key is waiting to be looked at.
func (d *Engine) Step() bool {
	if len(d.shut) > 0 {
		return false
	}
	e := d.queue.pop()
	if e == nil {
		return false
	}
	if d.settings.Waited != nil {
		d.settings.Waited(d.now.Sub(e.queuedAt))
	}
	d.turn(e)
	return true
}

// Storing is the number of turns, wakes and recalls without an answer.
func (d *Engine) Storing() int { return d.storing }

// Tally is what the engine did so far.
func (d *Engine) Tally() Tally {
	t := d.tally
	t.Depth, t.Parked = d.queue.depth, len(d.parked)
	return t
}

// own is the object that a key names: one of the kind that the controller owns,
// if the key does not name another.
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
		return compareRefs(events.Ref(a.key), events.Ref(b.key))
	})
}

// demand makes a key dirty, unless it is another replica's.
func (d *Engine) demand(e *entry, as rank) {
	if d.entries[e.key] != e || !d.owns(e.key) {
		return
	}
	if !e.wants() {
		delete(d.pending, e) // since when it wanted what it has had
	}
	e.dirty = true
	d.pend(e)
	if d.queue.push(e, d.now, as) {
		d.tally.Adds++
	}
}

// revisit puts a key that is dirty already back into the queue, because
// something that it waited for may have happened.
func (d *Engine) revisit(e *entry) { d.revisitAs(e, urgently) }

func (d *Engine) revisitAs(e *entry, as rank) {
	if e.dirty && d.entries[e.key] == e {
		d.queue.push(e, d.now, as)
	}
}

// alarm has a key looked at again at a moment, if it is still dirty then. An
// earlier alarm does for a later one, since every look sets what it needs.
func (d *Engine) alarm(e *entry, at time.Time) {
	if !e.alarm.IsZero() && !at.Before(e.alarm) {
		return
	}
	e.alarm = at
	d.timers.set(at, func() {
		if e.alarm.Equal(at) {
			e.alarm = time.Time{}
		}
		d.revisit(e)
	})
}

func (d *Engine) position(kind kinds.Name) uint64 { return d.memory.Position(kind) }
