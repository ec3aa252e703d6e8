package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/writer/claim"
	"github.com/millrace/millrace/services/writer/plan"
)

// Options shape a world.
type Options struct {
	Seed uint64
	// Watchers, Replicas and Writers are how many of each run.
	Watchers, Replicas, Writers int
	// Faults are how many things go wrong, chosen from Trouble.
	Faults  int
	Trouble []Fault
	// Changes are how many things users do, chosen from Users.
	Changes int
	Users   []Operation
	// Last is what users do after the last of their changes.
	Last Operation
	// Seldom is how many times as rare users and faults are as in other worlds while something
	// else can happen, so that they meet what has settled; 0: as in others, early and at once.
	Seldom int
	// Script is done by users in its order instead, in a world where everything
	// happens as soon as it can and in turn, so that nothing is left to chance.
	Script []Scene
	// Pace of reports; negative is none.
	Pace time.Duration
	// Skew is how far the clocks of processes may be apart from the world's.
	Skew time.Duration
	// Nodes is what nodes do with pods; the zero value runs them.
	Nodes Nodes
	// Cheat takes away what keeps a promise, to show that the invariants bite.
	Cheat Cheat
	// Ignore is the invariants that are not looked at, such as "I10".
	Ignore string
	// Horizon is how far away what is due may be for a world to come to rest before it; 0: five minutes.
	Horizon time.Duration
	// Ends is when a world ends that never comes to rest; 0: it has to.
	Ends time.Duration
	// Quiet is for how long no client must write in a world that never sleeps, for it to be
	// at rest; 0: it has to sleep.
	Quiet time.Duration
	// Asks: a controller asks again and again, and a script waits for none of it.
	Asks bool
	// Mute is a world without a transcript.
	Mute bool
	// Blow goes wrong at one point of a script; nil: nothing does.
	Blow *Blow
}

// Cheat is something that is taken away.
type Cheat int

// The cheats.
const (
	Honest Cheat = iota
	// HalfFence settles every turn as soon as it is stored.
	HalfFence
	// MemoryFence forgets what was decided with the process that decided it, as a
	// gate that is kept in memory does.
	MemoryFence
	// Deaf is reconcilers that miss now and then what a change asks for.
	Deaf
	// Heedless is a writer that neither looks whether a turn is stale nor minds
	// any condition of a command.
	Heedless
)

// World is one simulated cluster.
type World struct {
	options     Options
	random      *rand.Rand
	now         time.Time
	served      []kinds.Kind
	controllers []reconcile.Any
	promises    map[string]func(events.Command) bool
	bounds      map[string]bounds

	api      *API
	servers  []*server
	bus      *Bus
	watchers []*watcher
	first    int64  // the version of what is there from the start
	epoch    uint64 // the epoch of the storage, as far as a watcher has found out
	replicas []*replica
	writers  []*writer
	created  int       // writers that have been started
	pulse    time.Time // when writers last said what they have in flight
	heard    time.Time // when engines last heard that
	actors   []actor   // every thing that can happen; nil when they have to be counted anew
	ready    []actor
	turn     int // of the actors, when they take turns
	faults   int
	changes  int
	scene    int // of the script
	waited   int // steps since the last one
	work     []func()
	dirty    bool    // the nodes' work has to be looked for
	crash    *writer // dies as soon as its next request has had its effect
	asked    int     // requests of writers
	hiccups  int     // requests of engines that the bus will leave without an answer
	horizon  time.Duration
	stuck    bool      // a watch cache stood still until nothing else was to be done
	began    bool      // reconcilers began in the middle, and read each kind from a moment of its own
	late     bool      // what was excepted for that, or for a clock, is still to be mended by time alone
	fated    []fate    // of the next requests of writers
	until    time.Time // when what is held back has to go on; zero: nothing is
	story    []string
	broken   error
	recorded *Record
	tally    Tally
	guard    *guard
	kubelets map[string]*kubelet
	renewals int                  // writes of leases, which never end
	renewed  time.Time            // when the API server last renewed its lease
	drove    map[string]time.Time // when a node of each zone last began to drive pods away
	lull     time.Time            // until when users do nothing
	loads    map[string]int64     // how much the pods of a Deployment have to do, in thousandths
	blind    time.Time            // until when that is unknown
	crosses  int                  // how often another client writes between a look and a write
	wrote    int                  // writes when a client last stirred
	stirred  time.Time
	store    *drivers  // nil where there is no storage
	joins    bool      // nodes that join may have certificates
	joined   time.Time // until when they might, before that was taken back
	// prepared is which pods have begun to use a device, each with the claim by which it has it.
	prepared map[string]map[types.UID]types.UID
}

// Tally counts what happened in a world.
type Tally struct {
	Steps, Faults, Changes, Turns, Writes, Conflicts int
	// Judged is how many decisions were judged by what they rest on, and Effects how many
	// requests had an effect, which was looked at.
	Judged, Effects int
	// Busiest is how often one object was written while nothing else happened, and Latest how
	// long a key was undecided, at most.
	Busiest int
	Latest  time.Duration
	// Spared is how often each exception was made from a rule.
	Spared [exceptions]int
}

// Add counts two worlds together.
func (t Tally) Add(o Tally) Tally {
	sum := Tally{
		Steps: t.Steps + o.Steps, Faults: t.Faults + o.Faults, Changes: t.Changes + o.Changes, Turns: t.Turns + o.Turns,
		Writes: t.Writes + o.Writes, Conflicts: t.Conflicts + o.Conflicts, Judged: t.Judged + o.Judged, Effects: t.Effects + o.Effects,
		Busiest: max(t.Busiest, o.Busiest), Latest: max(t.Latest, o.Latest), Spared: t.Spared,
	}
	for e, n := range o.Spared {
		sum.Spared[e] += n
	}
	return sum
}

func (t Tally) String() string {
	return fmt.Sprintf("%d steps, %d faults, %d changes, %d turns, %d writes, at most %d of one object at once, a key undecided for %v at most",
		t.Steps, t.Faults, t.Changes, t.Turns, t.Writes, t.Busiest, t.Latest)
}

// actor is one thing that can happen again and again.
type actor interface {
	ready() bool
	act()
}

// bounds gives the check of a turn's commands: whether they are within its controller's promise.
type bounds func(t events.Turn, own func() metav1.Object, read func(events.Ref) metav1.Object) func(events.Command) error

// Epoch is when every world begins.
var Epoch = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

var errHiccup = errors.New("the bus did not answer")

// New makes a world in which nothing has happened yet.
func New(o Options, controllers []reconcile.Any) *World {
	o.Watchers, o.Replicas, o.Writers = max(o.Watchers, 1), max(o.Replicas, 1), max(o.Writers, 1)
	w := &World{
		options: o, random: rand.New(rand.NewPCG(o.Seed, 7)), now: Epoch, served: servedBy(controllers),
		controllers: controllers, promises: map[string]func(events.Command) bool{}, bounds: map[string]bounds{},
		pulse: Epoch, faults: o.Faults, changes: o.Changes, horizon: cmp.Or(o.Horizon, 5*time.Minute),
	}
	clock := func() time.Time { return w.now }
	w.api, w.bus = NewAPI(clock, w.served...), newBus(clock, w.served)
	w.guard = newGuard(w)
	w.api.Changed, w.api.Meter = w.guard.changed, w.meter
	w.servers = []*server{{api: w.api}, {api: w.api}}
	for _, c := range controllers {
		d := c.Describe()
		w.promises[d.Name], w.bounds[d.Name] = d.Writes.Allows, d.Fits
		w.bus.open(d.Name)
	}
	w.populate()
	w.first = w.api.version
	for range o.Watchers {
		w.watchers = append(w.watchers, newWatcher(w))
	}
	for range o.Replicas {
		w.replicas = append(w.replicas, newReplica(w))
	}
	for range o.Writers {
		w.writers = append(w.writers, w.newWriter())
	}
	return w
}

// servedBy is every kind that one of the controllers names.
func servedBy(controllers []reconcile.Any) []kinds.Kind {
	var all []kinds.Kind
	for _, c := range controllers {
		for _, in := range c.Describe().Inputs {
			if !in.Every && !slices.Contains(all, in.Kind) {
				all = append(all, in.Kind)
			}
		}
	}
	slices.SortFunc(all, func(a, b kinds.Kind) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// Run lets the world live until its inputs and faults have ended and it has come
// to rest; the error is the first invariant that broke, with the transcript.
func (w *World) Run() error {
	const most = 30000
	for w.tally.Steps < most {
		if w.broken != nil {
			return w.failure(w.broken)
		}
		if w.options.Blow != nil {
			w.options.Blow.before(w)
		}
		if w.recorded != nil {
			w.recorded.note(w)
		}
		if w.options.Ends > 0 && w.now.Sub(Epoch) > w.options.Ends {
			return nil
		}
		w.stir()
		if w.faults == 0 && w.changes == 0 {
			w.setClocks()
		}
		if !w.step() {
			if err := w.rest(); err != nil {
				return w.failure(err)
			}
			return nil
		}
	}
	return w.failure(fmt.Errorf("I1 (convergence) broken: no rest after %d steps", most))
}

// Tally is what has happened so far.
func (w *World) Tally() Tally {
	t := w.tally
	t.Writes = w.api.Writes
	return t
}

// step lets one thing happen; it gives false when nothing can happen any more.
func (w *World) step() bool {
	w.tally.Steps++
	w.bus.fire()
	if w.actors == nil {
		w.count()
	}
	if w.options.Script != nil {
		return w.inTurn()
	}
	w.ready = w.ready[:0]
	for _, a := range w.actors {
		if a.ready() {
			w.ready = append(w.ready, a)
		}
	}
	if len(w.ready) == 0 {
		w.meanwhile()
	}
	// Users and faults come now and then, so that what they meet has got
	// somewhere; when nothing else moves, it is a user's turn.
	roll := w.random.IntN(20)
	if w.options.Seldom > 0 && roll < 2 && w.random.IntN(w.options.Seldom) > 0 {
		roll = 2
	}
	switch {
	case w.changes > 0 && !w.now.Before(w.lull) && (roll == 0 || len(w.ready) == 0):
		w.changes--
		w.tally.Changes++
		w.guard.stirred()
		w.options.Users[w.roll(len(w.options.Users))](w)
		if w.changes == 0 && w.options.Last != nil {
			w.options.Last(w)
		}
	case w.faults > 0 && roll == 1 && len(w.ready) > 0:
		w.faults--
		w.tally.Faults++
		w.guard.stirred()
		w.options.Trouble[w.roll(len(w.options.Trouble))](w)
	case len(w.ready) == 0 && w.still():
		return false
	case len(w.ready) == 0:
		return w.sleep()
	default:
		w.ready[w.random.IntN(len(w.ready))].act()
	}
	return true
}

// count looks up everything that can happen.
func (w *World) count() {
	for _, x := range w.watchers {
		for _, k := range x.kinds {
			w.actors = append(w.actors, k)
		}
	}
	for _, r := range w.replicas {
		for _, f := range r.followers {
			w.actors = append(w.actors, f)
		}
		for _, d := range r.engines {
			w.actors = append(w.actors, d.actors()...)
		}
		w.actors = append(w.actors, sharing{r})
	}
	for _, x := range w.writers {
		w.actors = append(w.actors, x.actors()...)
	}
	w.actors = append(w.actors, nodes{w})
}

// sleep lets time pass until something is due; false when nothing ever is. What
// is further away than the horizon does not count here.
func (w *World) sleep() bool {
	next := w.next()
	if next.IsZero() || next.Sub(w.now) > w.horizon {
		return w.release()
	}
	w.guard.waited(next.Sub(w.now))
	w.advance(next)
	w.liveness()
	for _, x := range w.watchers {
		for _, k := range x.kinds {
			k.bookmark()
		}
	}
	return true
}

// next is when something is due; zero when nothing is.
func (w *World) next() (next time.Time) {
	consider := func(at time.Time) {
		if at.After(w.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if w.changes > 0 {
		consider(w.lull)
	}
	if len(w.kubelets) > 0 {
		consider(w.renewed.Add(renewEvery))
	}
	for _, r := range w.replicas {
		if consider(r.asleep); !r.stalled() {
			if at, ok := r.next(); ok {
				consider(at)
			}
		}
		for _, f := range r.followers {
			if f.behind() {
				consider(f.asks())
			}
			for _, h := range f.holds {
				if !h.since.IsZero() {
					consider(h.since.Add(patience))
				}
			}
		}
	}
	for _, x := range w.writers {
		if consider(x.asleep); x.waits() {
			consider(w.pulse.Add(claim.Interval))
		}
	}
	for _, x := range w.watchers {
		consider(x.asleep)
		for _, k := range x.kinds {
			consider(k.resting)
		}
	}
	consider(w.until)
	w.store.due(consider)
	w.bus.due(consider)
	return next
}

// advance moves the clock of everything.
func (w *World) advance(to time.Time) {
	// The storage is written to all the time: nodes renew their leases.
	w.api.version += to.Unix() - w.now.Unix()
	// Engines hear the writers all the time: also just before anything is due.
	if len(w.replicas) > 1 && to.After(w.now) {
		w.guard.stirred() // two that see different things, and own no keys here, write in turn
	}
	if just := to.Add(-claim.Interval); just.After(w.now) || w.now.Sub(w.heard) >= claim.Interval {
		if just.After(w.now) {
			w.now = just
		}
		w.heard = w.now
		w.heartbeats(w.now)
		for _, r := range w.replicas {
			r.advance()
			r.hear()
		}
	}
	w.now = to
	w.heartbeats(to)
	for _, r := range w.replicas {
		r.advance()
	}
	if !w.until.IsZero() && !to.Before(w.until) {
		w.release()
	}
	w.store.passed()
	w.guard.drivenNow()
}

// patience is how long something is held back at most.
const patience = 10 * time.Second

func (w *World) hold() { w.until = w.now.Add(patience) }

// release ends what a fault has held back.
func (w *World) release() (some bool) {
	w.until = time.Time{}
	for _, r := range w.replicas {
		for _, f := range r.followers {
			some = some || f.old > 0 && f.old < f.stream.end()
			f.old, f.copied = 0, nil
		}
	}
	for _, s := range w.servers {
		if s.stuck > 0 {
			some, w.stuck = true, true
			s.stuck = 0
		}
	}
	return some
}

// request lets the API server do what a writer asks, unless a precondition that
// should be there is dropped on purpose.
func (w *World) request(c *carrying, r plan.Request) plan.Response {
	if w.options.Cheat == Heedless && r.Delete != nil {
		r.Delete.Preconditions = nil
	}
	w.guard.before(c, r)
	version := w.api.version
	w.guard.doing = c
	answer := w.api.Do(r)
	w.guard.doing = nil
	w.guard.reads(c, r, answer)
	w.guard.wrote(c, r, answer, w.api.version != version)
	if answer.Code == 409 && r.Verb != plan.Create {
		w.tally.Conflicts++
	}
	switch scaled := r.Subresource == "scale" && answer.Code == 200; {
	case scaled && r.Verb.Writes():
		w.guard.rescaled(c, r)
	case scaled:
		w.guard.rescaledAlready(c, r, answer)
	}
	if r.Verb.Writes() {
		w.guard.after(c, r, w.api.version != version)
		w.note("turn %d of %s: %s %s %s/%s -> %d %s", c.sequence, c.turn.Controller, r.Verb, r.Kind, r.Name, r.Subresource, answer.Code, answer.Reason)
	}
	return answer
}

// roll is a number below n; 0 in a world in which nothing is left to chance.
func (w *World) roll(n int) int {
	if w.options.Script != nil {
		return 0
	}
	return w.random.IntN(n)
}

// pick is the next delivery of a durable: the first one, or any of the first few.
func (w *World) pick(d *durable) *delivery {
	if w.options.Script != nil {
		return d.ready(true)[0]
	}
	all := d.ready(false)
	return all[w.random.IntN(len(all))]
}

// skew is how far a new process' clock is ahead.
func (w *World) skew() time.Duration {
	if w.options.Skew == 0 {
		return 0
	}
	return time.Duration(w.random.Int64N(int64(2*w.options.Skew))) - w.options.Skew
}

// fate is what becomes of the next request of a writer.
func (w *World) fate() fate {
	if w.asked++; w.options.Blow != nil {
		w.options.Blow.request(w)
	}
	if len(w.fated) == 0 {
		return works
	}
	f := w.fated[0]
	w.fated = w.fated[1:]
	return f
}

// hiccup tells whether the bus leaves a request without an answer.
func (w *World) hiccup() bool {
	if w.hiccups == 0 {
		return false
	}
	w.hiccups--
	return true
}

func (w *World) note(format string, args ...any) {
	if !w.options.Mute {
		w.story = append(w.story, w.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func (w *World) failure(err error) error {
	from := max(0, len(w.story)-60)
	tail := slices.Clone(w.story[from:])
	for _, line := range slices.Backward(w.story[:from]) {
		if strings.Contains(line, "fault: ") { // what went wrong before, whatever else happened
			tail = slices.Insert(tail, 0, line)
		}
	}
	return fmt.Errorf("seed %d: %w\n%s", w.options.Seed, err, strings.Join(tail, "\n"))
}

// Story is the transcript so far, a line for each thing that happened.
func (w *World) Story() string { return strings.Join(w.story, "\n") }
