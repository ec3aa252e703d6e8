package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/writer/plan"
)

// Options shape a world.
type Options struct {
	Seed uint64
	// Replicas and Writers are how many of each run.
	Replicas, Writers int
	// Faults are how many crashes, lost answers and double deliveries may happen.
	Faults int
	// Changes are how many things users do.
	Changes int
	// Pace of reports; negative is none.
	Pace time.Duration
	// Preconditions: off is a writer that neither looks whether a turn is stale
	// nor minds any condition of a command, to show that the invariants bite.
	Preconditions bool
	// HalfFence settles every turn as soon as it is stored, to show the same.
	HalfFence bool
}

// World is one simulated cluster.
type World struct {
	options     Options
	random      *rand.Rand
	now         time.Time
	served      []kinds.Kind
	controllers []reconcile.Any
	promises    map[string]func(events.Command) bool

	api      *API
	bus      *Bus
	watched  map[kinds.Name]int // changes of the API server that the watcher has read
	replicas []*replica
	writers  []*writer
	marked   time.Time // when the logs were last marked
	faults   int
	changes  int
	pending  []pendingCheck
	story    []string
	broken   error
	peaks    peaks
}

// pendingCheck is a condition that is looked at after every step until it holds.
type pendingCheck struct {
	holds func() bool
	of    *replica
}

// Epoch is when every world begins.
var Epoch = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// New makes a world in which nothing has happened yet.
func New(o Options, controllers []reconcile.Any) *World {
	w := &World{
		options: o, random: rand.New(rand.NewPCG(o.Seed, 7)), now: Epoch, marked: Epoch,
		served:      []kinds.Kind{kinds.Deployments.Kind, kinds.ReplicaSets.Kind, kinds.Pods.Kind},
		controllers: controllers, promises: map[string]func(events.Command) bool{},
		watched: map[kinds.Name]int{}, faults: o.Faults, changes: o.Changes, peaks: newPeaks(),
	}
	for _, c := range controllers {
		d := c.Describe()
		w.promises[d.Name] = d.Writes.Allows
	}
	w.api = NewAPI(func() time.Time { return w.now }, w.served...)
	w.bus = newBus(func() time.Time { return w.now })
	for range o.Replicas {
		w.replicas = append(w.replicas, newReplica(w))
	}
	for range o.Writers {
		w.writers = append(w.writers, &writer{world: w})
	}
	return w
}

// Run lets the world live until its inputs and faults have ended and it has come
// to rest; the error is the first invariant that broke, with the transcript.
func (w *World) Run() error {
	const most = 30000
	for range most {
		if w.broken != nil {
			return w.failure(w.broken)
		}
		if !w.step() {
			if err := w.rest(); err != nil {
				return w.failure(err)
			}
			return nil
		}
		w.check()
	}
	return w.failure(fmt.Errorf("no rest after %d steps", most))
}

// step lets one thing happen, chosen by the seed; it gives false when nothing
// can happen any more.
func (w *World) step() bool {
	w.settlePending()
	moves := w.moves()
	// Users and faults come now and then, so that what they meet has got
	// somewhere; when nothing else moves, it is a user's turn.
	switch roll := w.random.IntN(20); {
	case w.changes > 0 && (roll == 0 || len(moves) == 0):
		w.user()
	case w.faults > 0 && roll == 1 && len(moves) > 0:
		w.fault()
	case len(moves) == 0:
		return w.sleep()
	default:
		moves[w.random.IntN(len(moves))]()
	}
	return true
}

// moves is everything that could happen now.
func (w *World) moves() []func() {
	var moves []func()
	add := func(more ...func()) { moves = append(moves, more...) }
	for _, k := range w.served {
		if w.watched[k.Name] < len(w.api.log[k.Name]) {
			add(func() { w.watch(k) })
		}
	}
	for _, r := range w.replicas {
		add(r.moves()...)
	}
	for _, x := range w.writers {
		add(x.moves()...)
	}
	add(w.nodesWork()...)
	add(w.firedWakes()...)
	return moves
}

// sleep lets time pass until something is due; false when nothing ever is. Wakes
// further away than horizon are nobody's business here.
func (w *World) sleep() bool {
	const horizon = 5 * time.Minute
	next := time.Time{}
	consider := func(at time.Time) {
		if at.After(w.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, r := range w.replicas {
		for _, d := range r.desks {
			if at, ok := d.Next(); ok {
				consider(at)
			}
		}
	}
	for _, d := range w.bus.durables {
		for _, p := range d.pending {
			consider(p.at)
		}
	}
	for _, wake := range w.bus.wakes {
		consider(wake.At)
	}
	if next.IsZero() || next.Sub(w.now) > horizon {
		return false
	}
	w.advance(next)
	w.bookmark()
	return true
}

// bookmark marks every log once a minute, as the watcher does when the API
// server tells it how far it is.
func (w *World) bookmark() {
	if w.now.Sub(w.marked) < time.Minute {
		return
	}
	w.marked = w.now
	for _, k := range w.served {
		if w.watched[k.Name] == len(w.api.log[k.Name]) {
			w.bus.append(translate.Mark(k.Name, strconv.FormatInt(w.api.version, 10), time.Time{}, translate.Stamp{At: w.now}))
		}
	}
}

// advance moves the clock of everything.
func (w *World) advance(to time.Time) {
	w.now = to
	for _, r := range w.replicas {
		for _, d := range r.desks {
			d.Advance(to)
		}
	}
}

// watch appends the next change of a kind to its log, as the watcher does.
func (w *World) watch(k kinds.Kind) {
	change := w.api.log[k.Name][w.watched[k.Name]]
	w.watched[k.Name]++
	w.bus.append(deltaOf(k, change, w.now))
}

// firedWakes is every wake whose moment has come, as a move of some replica.
func (w *World) firedWakes() []func() {
	var moves []func()
	for at, wake := range w.bus.wakes {
		if wake.At.After(w.now) {
			continue
		}
		moves = append(moves, func() {
			delete(w.bus.wakes, at)
			for _, d := range w.replicas[w.random.IntN(len(w.replicas))].desks {
				if d.Name() == wake.Controller {
					d.Wake(0, wake, nil)
				}
			}
		})
	}
	if len(moves) > 1 {
		return moves[:1] // the order of a map must not decide
	}
	return moves
}

// request lets the API server do what a writer asks, unless a precondition that
// should be there is dropped on purpose.
func (w *World) request(controller string, c events.Command, r plan.Request) plan.Response {
	if !w.options.Preconditions && r.Delete != nil {
		r.Delete.Preconditions = nil
	}
	w.beforeRequest(controller, r)
	answer := w.api.Do(r)
	if r.Verb.Writes() {
		w.note("%s: %s %s %s/%s -> %d %s", controller, r.Verb, r.Kind, r.Name, r.Subresource, answer.Code, answer.Reason)
	}
	_ = c
	return answer
}

// later has a condition looked at after every step, as long as the replica
// lives.
func (w *World) later(holds func() bool, of *replica) {
	w.pending = append(w.pending, pendingCheck{holds: holds, of: of})
}

func (w *World) settlePending() {
	kept := w.pending[:0]
	for _, p := range w.pending {
		if w.lives(p.of) && !p.holds() {
			kept = append(kept, p)
		}
	}
	w.pending = kept
}

func (w *World) lives(r *replica) bool {
	for _, x := range w.replicas {
		if x == r {
			return true
		}
	}
	// A replica that is just being made is not in the list yet.
	return r != nil && len(w.replicas) < w.options.Replicas
}

func (w *World) note(format string, args ...any) {
	w.story = append(w.story, w.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *World) failure(err error) error {
	tail := w.story[max(0, len(w.story)-60):]
	return fmt.Errorf("seed %d: %w\n%s\nagain: make sim SEED=%d N=1", w.options.Seed, err, strings.Join(tail, "\n"), w.options.Seed)
}

// Story is the transcript so far, a line for each thing that happened.
func (w *World) Story() string { return strings.Join(w.story, "\n") }
