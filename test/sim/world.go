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
	writelimits "github.com/millrace/millrace/services/writer/limits"
	"github.com/millrace/millrace/services/writer/plan"
)

// Options shape a world.
type Options struct {
	Seed uint64
	// Watchers, Replicas and Writers are the numbers of processes.
	Watchers, Replicas, Writers int
	// Faults is the number of faults, chosen from Trouble.
	Faults  int
	Trouble []Fault
	// Changes is the number of users' operations, chosen from Users.
	Changes int
	Users   []Operation
	// Last is users' last operation.
	Last Operation
	// Seldom divides the rate of users' operations and faults while something else can happen,
	// so that they meet a settled world; 0: the usual rate, early and together.
	Seldom int
	// Script replaces Users: users follow it in order, in a world where every actor acts as
	// soon as it can and in turn, so that nothing is left to chance.
	Script []Scene
	// Pace of reports; negative is none.
	Pace time.Duration
	// Skew bounds the difference between the clocks of processes and that of the world.
	Skew time.Duration
	// Nodes is what nodes do with pods; the zero value runs the pods.
	Nodes Nodes
	// Cheat breaks a mechanism on purpose, to show that the invariants detect it.
	Cheat Cheat
	// Ignore lists the invariants that are not checked, such as "I10".
	Ignore string
	// Horizon is how far away the next due event must be for a world to be at rest; 0: five minutes.
	Horizon time.Duration
	// Ends is when a world ends that never comes to rest; 0: the world has to come to rest.
	Ends time.Duration
	// Quiet is for how long no client may write for a world that never sleeps to be at rest; 0:
	// the world has to sleep.
	Quiet time.Duration
	// Asks: a controller asks again and again, and a script does not wait for that.
	Asks bool
	// Limits are the writers' write limits; nil: none. Rule is what they mean, by which the guard
	// judges.
	Limits *writelimits.Set
	Rule   LimitRule
	// Mute disables the transcript.
	Mute bool
	// Blow is a fault at one point of a script; nil: none.
	Blow *Blow
}

// Cheat is a mechanism that is disabled.
type Cheat int

// The cheats.
const (
	Honest Cheat = iota
	// HalfFence settles every turn as soon as it is stored.
	HalfFence
	// MemoryFence makes the fence lose its state when its process dies, like a gate that is
	// kept in memory.
	MemoryFence
	// Deaf makes reconcilers miss some of the keys that changes ask for.
	Deaf
	// Heedless makes writers check neither whether a turn is stale nor any condition of a
	// command.
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
	first    int64  // the version after the initial objects
	epoch    uint64 // the epoch of the storage, as known to the watchers
	replicas []*replica
	writers  []*writer
	created  int       // writers that have been started
	pulse    time.Time // when writers last sent a heartbeat
	heard    time.Time // when engines last received those
	actors   []actor   // everything that can happen; nil when it has to be collected again
	ready    []actor
	turn     int // index in actors, when they take turns
	faults   int
	changes  int
	scene    int // index in the script
	waited   int // steps since the last one
	work     []func()
	dirty    bool    // the nodes' work has to be collected
	crash    *writer // dies as soon as its next request has taken effect
	asked    int     // requests of writers
	hiccups  int     // requests of engines that the bus will leave without an answer
	horizon  time.Duration
	stuck    bool      // a watch cache stood still until nothing else was left to do
	began    bool      // a replica began in the middle, and read each kind up to another moment
	late     bool      // only time will correct what was excepted for that, or for a clock
	fated    []fate    // the results of the next requests of writers
	until    time.Time // when held-back messages are released; zero: none are
	story    []string
	broken   error
	recorded *Record
	tally    Tally
	guard    *guard
	kubelets map[string]*kubelet
	renewals int                  // writes of leases, which never end
	renewed  time.Time            // when the API server last renewed its own lease
	drove    map[string]time.Time // when a node of each zone last began to evict its pods
	lull     time.Time            // until when users pause
	loads    map[string]int64     // the load of the pods of a Deployment, in thousandths
	blind    time.Time            // until when the metrics are unknown
	crosses  int                  // how often another client writes between a read and a write
	wrote    int                  // the number of writes when a client last wrote
	stirred  time.Time
	store    *drivers  // nil without storage
	joins    bool      // joining nodes may have certificates
	joined   time.Time // until when they might, before that was revoked
	// prepared holds the pods that have begun to use a device, each with the claim that gives
	// it the device.
	prepared map[string]map[types.UID]types.UID
}

// Tally counts what happened in a world.
type Tally struct {
	Steps, Faults, Changes, Turns, Writes, Conflicts int
	// Held counts the commands that a write limit held.
	Held int
	// Judged counts the decisions judged by their view, and Effects the requests whose effect
	// was checked.
	Judged, Effects int
	// Busiest is the most writes of one object while nothing else happened, and Latest the
	// longest time that a key was undecided.
	Busiest int
	Latest  time.Duration
	// Spared counts, for each exception, how often it was made.
	Spared [exceptions]int
}

// Add sums the counts of two worlds.
func (t Tally) Add(o Tally) Tally {
	sum := Tally{
		Steps: t.Steps + o.Steps, Faults: t.Faults + o.Faults, Changes: t.Changes + o.Changes, Turns: t.Turns + o.Turns,
		Writes: t.Writes + o.Writes, Conflicts: t.Conflicts + o.Conflicts, Held: t.Held + o.Held, Judged: t.Judged + o.Judged, Effects: t.Effects + o.Effects,
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

// actor is a source of steps, each of which can happen again and again.
type actor interface {
	ready() bool
	act()
}

// bounds returns the check of a turn's commands against its controller's promise.
type bounds func(t events.Turn, own func() metav1.Object, read func(events.Ref) metav1.Object) func(events.Command) error

// Epoch is the time at which every world begins.
var Epoch = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

var errHiccup = errors.New("the bus did not answer")

// New makes a world in which no step has happened yet.
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

// Run runs the world until its inputs and faults have ended and it has come to rest; the error
// is the first broken invariant, with the transcript.
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

// Tally is the counts so far.
func (w *World) Tally() Tally {
	t := w.tally
	t.Writes = w.api.Writes
	return t
}

// step performs one step; false when no step is possible any more.
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
	// Users and faults come seldom, so that they meet a world that has made progress; when
	// nothing else moves, a user acts.
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

// count collects everything that can happen.
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

// sleep lets time pass until something is due; false when nothing is. It ignores events beyond
// the horizon.
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

// next is when something is due next; zero when nothing is.
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

// advance moves the clocks of the world and its processes.
func (w *World) advance(to time.Time) {
	// The storage changes all the time, because nodes renew their leases.
	w.api.version += to.Unix() - w.now.Unix()
	// Engines receive the writers' heartbeats all the time, also just before an event is due.
	if len(w.replicas) > 1 && to.After(w.now) {
		w.guard.stirred() // two replicas with different views, and no shares of keys here, write alternately
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

// patience bounds the time for which a fault holds something back.
const patience = 10 * time.Second

func (w *World) hold() { w.until = w.now.Add(patience) }

// release releases what a fault has held back.
func (w *World) release() (some bool) {
	w.until = time.Time{}
	for _, r := range w.replicas {
		for _, f := range r.followers {
			some = some || f.old > 0 && f.old < f.stream.end()
			f.old = 0
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

// request lets the API server carry out a writer's request, unless a cheat drops one of its
// preconditions.
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

// roll is a random number below n; 0 in a scripted world.
func (w *World) roll(n int) int {
	if w.options.Script != nil {
		return 0
	}
	return w.random.IntN(n)
}

// pick is the next delivery of a durable: the first one, or a random one of the first few.
func (w *World) pick(d *durable) *delivery {
	if w.options.Script != nil {
		return d.ready(true)[0]
	}
	all := d.ready(false)
	return all[w.random.IntN(len(all))]
}

// skew is how far the clock of a new process is ahead.
func (w *World) skew() time.Duration {
	if w.options.Skew == 0 {
		return 0
	}
	return time.Duration(w.random.Int64N(int64(2*w.options.Skew))) - w.options.Skew
}

// fate is the result of the next request of a writer.
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

// hiccup reports whether the bus leaves a request unanswered.
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
		if strings.Contains(line, "fault: ") { // earlier faults, even if the tail of the transcript lacks them
			tail = slices.Insert(tail, 0, line)
		}
	}
	return fmt.Errorf("seed %d: %w\n%s", w.options.Seed, err, strings.Join(tail, "\n"))
}

// Story is the transcript so far, one line per event.
func (w *World) Story() string { return strings.Join(w.story, "\n") }
