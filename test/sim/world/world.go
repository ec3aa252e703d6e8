package world

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/writer/claim"
	writelimits "github.com/millrace/millrace/services/writer/limits"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/devices"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/rules"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/streams"
	"github.com/millrace/millrace/test/sim/workloads"
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
	Users   []cluster.Operation
	// Last is users' last operation.
	Last cluster.Operation
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
	Nodes cluster.Nodes
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
	// Blow makes a fault at one point of a script; nil: there is none.
	Blow Probe
	// Record takes notes of a run; nil: none are taken.
	Record Probe
}

// Probe is called at the points of a run at which the sieve makes faults.
type Probe interface {
	// Step is called before each step.
	Step(w *World)
	// Request is called before each request of a writer to the API server.
	Request(w *World)
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

// World is one simulated cluster with its processes.
type World struct {
	*cluster.Cluster
	options     Options
	Served      []kinds.Kind
	controllers []reconcile.Any
	bounds      map[string]bounds

	servers  []*server
	Watchers []*watcher
	first    int64  // the version after the initial objects
	epoch    uint64 // the epoch of the storage, as known to the watchers
	Replicas []*replica
	Writers  []*writer
	deleted  []deletion           // pods that a controller with a write limit deleted
	carriers map[turnAt]*carrying // the writers that last began each turn
	created  int                  // writers that have been started
	pulse    time.Time            // when writers last sent a heartbeat
	heard    time.Time            // when engines last received those
	actors   []actor              // everything that can happen; nil when it has to be collected again
	ready    []actor
	turn     int     // index in actors, when they take turns
	scene    int     // index in the script
	waited   int     // steps since the last one
	Crash    *writer // dies as soon as its next request has taken effect
	Asked    int     // requests of writers
	hiccups  int     // requests of engines that the bus will leave without an answer
	horizon  time.Duration
	Fated    []fate    // the results of the next requests of writers
	until    time.Time // when held-back messages are released; zero: none are
}

// bounds returns the check of a turn's commands against its controller's promise.
type bounds func(t events.Turn, own func() metav1.Object, read func(events.Ref) metav1.Object) func(events.Command) error

// Epoch is the time at which every world begins.
var Epoch = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

var errHiccup = errors.New("the bus did not answer")

// New makes a world in which no step has happened yet.
func New(o Options, controllers []reconcile.Any) *World {
	o.Watchers, o.Replicas, o.Writers = max(o.Watchers, 1), max(o.Replicas, 1), max(o.Writers, 1)
	c := &cluster.Cluster{
		Settings: cluster.Settings{
			Faults: o.Faults, Quiet: o.Quiet, Skew: o.Skew, Nodes: o.Nodes, Ignore: o.Ignore, Mute: o.Mute,
			Scripted: o.Script != nil, Blown: o.Blow != nil,
		},
		Random: rand.New(rand.NewPCG(o.Seed, 7)), Now: Epoch, Promises: map[string]func(events.Command) bool{}, Faults: o.Faults, Changes: o.Changes,
	}
	w := &World{
		Cluster: c, options: o, Served: servedBy(controllers), controllers: controllers, bounds: map[string]bounds{},
		carriers: map[turnAt]*carrying{}, pulse: Epoch, horizon: cmp.Or(o.Horizon, 5*time.Minute),
	}
	c.Advance, c.ClocksDiffer = w.advance, w.clocksDiffer
	clock := func() time.Time { return w.Now }
	w.API, w.Bus = apiserver.New(clock, w.Served...), streams.New(clock, w.Served)
	w.Guard = cluster.NewGuard(c, w.Served)
	w.API.Changed, w.API.Meter = func(ref events.Ref, old, now metav1.Object) { rules.Changed(w.Guard, ref, old, now) }, func(d *appsv1.Deployment, selector string) query.Reading {
		return workloads.Meter(w.Cluster, d, selector)
	}
	w.servers = []*server{{api: w.API}, {api: w.API}}
	for _, c := range controllers {
		d := c.Describe()
		w.Promises[d.Name], w.bounds[d.Name] = d.Writes.Allows, d.Fits
		w.Bus.Open(d.Name)
	}
	populate(w.Cluster)
	w.first = w.API.Version
	for range o.Watchers {
		w.Watchers = append(w.Watchers, newWatcher(w))
	}
	for range o.Replicas {
		w.Replicas = append(w.Replicas, newReplica(w))
	}
	for range o.Writers {
		w.Writers = append(w.Writers, w.newWriter())
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
	for w.Counts.Steps < most {
		if w.Broken != nil {
			return w.Failure(w.Broken)
		}
		if w.options.Blow != nil {
			w.options.Blow.Step(w)
		}
		if w.options.Record != nil {
			w.options.Record.Step(w)
		}
		if w.options.Ends > 0 && w.Now.Sub(Epoch) > w.options.Ends {
			return nil
		}
		workloads.Stir(w.Cluster)
		if w.Faults == 0 && w.Changes == 0 {
			w.setClocks()
		}
		if !w.step() {
			if err := w.rest(); err != nil {
				return w.Failure(err)
			}
			return nil
		}
	}
	return w.Failure(fmt.Errorf("I1 (convergence) broken: no rest after %d steps", most))
}

// step performs one step; false when no step is possible any more.
func (w *World) step() bool {
	w.Counts.Steps++
	w.Bus.Fire()
	if w.actors == nil {
		w.count()
	}
	if w.options.Script != nil {
		return w.inTurn()
	}
	w.ready = w.ready[:0]
	for _, a := range w.actors {
		if a.Ready() {
			w.ready = append(w.ready, a)
		}
	}
	if len(w.ready) == 0 {
		w.meanwhile()
	}
	// Users and faults come seldom, so that they meet a world that has made progress; when
	// nothing else moves, a user acts.
	roll := w.Random.IntN(20)
	if w.options.Seldom > 0 && roll < 2 && w.Random.IntN(w.options.Seldom) > 0 {
		roll = 2
	}
	switch {
	case w.Changes > 0 && !w.Now.Before(w.Lull) && (roll == 0 || len(w.ready) == 0):
		w.Changes--
		w.Counts.Changes++
		w.Guard.Stirred()
		w.options.Users[w.Roll(len(w.options.Users))](w.Cluster)
		if w.Changes == 0 && w.options.Last != nil {
			w.options.Last(w.Cluster)
		}
	case w.Faults > 0 && roll == 1 && len(w.ready) > 0:
		w.Faults--
		w.Counts.Faults++
		w.Guard.Stirred()
		w.options.Trouble[w.Roll(len(w.options.Trouble))](w)
	case len(w.ready) == 0 && workloads.Still(w.Cluster):
		return false
	case len(w.ready) == 0:
		return w.sleep()
	default:
		w.ready[w.Random.IntN(len(w.ready))].act()
	}
	return true
}

// count collects everything that can happen.
func (w *World) count() {
	for _, x := range w.Watchers {
		for _, k := range x.kinds {
			w.actors = append(w.actors, k)
		}
	}
	for _, r := range w.Replicas {
		for _, f := range r.Followers {
			w.actors = append(w.actors, f)
		}
		for _, d := range r.engines {
			w.actors = append(w.actors, d.actors()...)
		}
		w.actors = append(w.actors, sharing{r})
	}
	for _, x := range w.Writers {
		w.actors = append(w.actors, x.actors()...)
	}
	w.actors = append(w.actors, nodeWork{w})
}

// sleep lets time pass until something is due; false when nothing is. It ignores events beyond
// the horizon.
func (w *World) sleep() bool {
	next := w.next()
	if next.IsZero() || next.Sub(w.Now) > w.horizon {
		return w.release()
	}
	w.chargeFor(next.Sub(w.Now))
	w.advance(next)
	nodes.Liveness(w.Cluster)
	for _, x := range w.Watchers {
		for _, k := range x.kinds {
			k.bookmark()
		}
	}
	return true
}

// next is when something is due next; zero when nothing is.
func (w *World) next() (next time.Time) {
	consider := func(at time.Time) {
		if at.After(w.Now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if w.Changes > 0 {
		consider(w.Lull)
	}
	if len(w.Nodes.Kubelets) > 0 {
		consider(w.Nodes.Renewed.Add(nodes.RenewEvery))
	}
	for _, r := range w.Replicas {
		if consider(r.Asleep); !r.stalled() {
			if at, ok := r.next(); ok {
				consider(at)
			}
		}
		for _, f := range r.Followers {
			if f.behind() {
				consider(f.asks())
			}
			for _, h := range f.Holds {
				if !h.since.IsZero() {
					consider(h.since.Add(Patience))
				}
			}
		}
	}
	for _, x := range w.Writers {
		if consider(x.Asleep); x.waits() {
			consider(w.pulse.Add(claim.Interval))
		}
	}
	for _, x := range w.Watchers {
		consider(x.Asleep)
		for _, k := range x.kinds {
			consider(k.resting)
		}
	}
	consider(w.until)
	storage.Due(w.Store, consider)
	w.Bus.Due(consider)
	return next
}

// advance moves the clocks of the world and its processes.
func (w *World) advance(to time.Time) {
	// The storage changes all the time, because nodes renew their leases.
	w.API.Version += to.Unix() - w.Now.Unix()
	// Engines receive the writers' heartbeats all the time, also just before an event is due.
	if len(w.Replicas) > 1 && to.After(w.Now) {
		w.Guard.Stirred() // two replicas with different views, and no shares of keys here, write alternately
	}
	if just := to.Add(-claim.Interval); just.After(w.Now) || w.Now.Sub(w.heard) >= claim.Interval {
		if just.After(w.Now) {
			w.Now = just
		}
		w.heard = w.Now
		w.heartbeats(w.Now)
		for _, r := range w.Replicas {
			r.Advance()
			r.hear()
		}
	}
	w.Now = to
	w.heartbeats(to)
	for _, r := range w.Replicas {
		r.Advance()
	}
	if !w.until.IsZero() && !to.Before(w.until) {
		w.release()
	}
	storage.Passed(w.Store)
	devices.DrivenNow(w.Guard)
}

// Patience bounds the time for which a fault holds something back.
const Patience = 10 * time.Second

func (w *World) hold() { w.until = w.Now.Add(Patience) }

// release releases what a fault has held back.
func (w *World) release() (some bool) {
	w.until = time.Time{}
	for _, r := range w.Replicas {
		for _, f := range r.Followers {
			some = some || f.old > 0 && f.old < f.Stream.End()
			f.old = 0
		}
	}
	for _, s := range w.servers {
		if s.stuck > 0 {
			some, w.Rest.Stuck = true, true
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
	rules.Before(w.Guard, &c.Taken, r)
	version := w.API.Version
	w.Guard.Turns.Doing = &c.Taken
	answer := w.API.Do(r)
	w.Guard.Turns.Doing = nil
	workloads.ReadsScale(w.Guard, &c.Taken, r, answer)
	rules.Wrote(w.Guard, &c.Taken, r, answer, w.API.Version != version)
	if answer.Code == 409 && r.Verb != plan.Create {
		w.Counts.Conflicts++
	}
	switch scaled := r.Subresource == "scale" && answer.Code == 200; {
	case scaled && r.Verb.Writes():
		workloads.Rescaled(w.Guard, &c.Taken, r)
	case scaled:
		workloads.RescaledAlready(w.Guard, &c.Taken, r, answer)
	}
	if r.Verb.Writes() {
		rules.After(w.Guard, &c.Taken, r, w.API.Version != version)
		w.Note("turn %d of %s: %s %s %s/%s -> %d %s", c.Sequence, c.Turn.Controller, r.Verb, r.Kind, r.Name, r.Subresource, answer.Code, answer.Reason)
	}
	return answer
}

// pick is the next delivery of a durable: the first one, or a random one of the first few.
func (w *World) pick(d *streams.Durable) *streams.Delivery {
	if w.options.Script != nil {
		return d.Ready(true)[0]
	}
	all := d.Ready(false)
	return all[w.Random.IntN(len(all))]
}

// skew is how far the clock of a new process is ahead.
func (w *World) skew() time.Duration {
	if w.options.Skew == 0 {
		return 0
	}
	return time.Duration(w.Random.Int64N(int64(2*w.options.Skew))) - w.options.Skew
}

// fate is the result of the next request of a writer.
func (w *World) fate() fate {
	if w.Asked++; w.options.Blow != nil {
		w.options.Blow.Request(w)
	}
	if len(w.Fated) == 0 {
		return works
	}
	f := w.Fated[0]
	w.Fated = w.Fated[1:]
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

// Failure is an error with the end of the transcript, and all faults before.
func (w *World) Failure(err error) error {
	from := max(0, len(w.Transcript)-60)
	tail := slices.Clone(w.Transcript[from:])
	for _, line := range slices.Backward(w.Transcript[:from]) {
		if strings.Contains(line, "fault: ") { // earlier faults, even if the tail of the transcript lacks them
			tail = slices.Insert(tail, 0, line)
		}
	}
	return fmt.Errorf("seed %d: %w\n%s", w.options.Seed, err, strings.Join(tail, "\n"))
}

// Story is the transcript so far, one line per event.
func (w *World) Story() string { return strings.Join(w.Transcript, "\n") }

// Archive is the record of a world, as a bus gives it to readers of the past. It lacks what the
// simulated bus does not model.
func (w *World) Archive() bus.Archive { return w.Bus.Archive() }

// populate creates the initial objects.
func populate(w *cluster.Cluster) {
	if w.API.Of(kinds.Namespaces.Name) != nil {
		w.Namespace(cluster.Namespace)
	}
	if w.Runs("storage-version-migrator-controller") {
		w.API.Encoded = map[apiserver.Stored]int{}
	}
	switch {
	case storage.Stores(w):
		storage.FurnishStorage(w)
	case devices.HasDevices(w):
		devices.FurnishDevices(w)
	case w.API.Of(kinds.Nodes.Name) != nil:
		nodes.SomeNode(w)
	}
}

// Tally is the counts so far.
func (w *World) Tally() cluster.Tally {
	t := w.Counts
	t.Writes = w.API.Writes
	return t
}
