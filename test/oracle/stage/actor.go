package stage

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/settle"
)

// Actor runs one of our controllers on a [Stage]. A change there makes turns by the controller's own mapping,
// a plan of the writer carries out each turn, and its outcome, a wake or the back-off after a failure makes
// the next one.
type Actor struct {
	Controller reconcile.Any
	Stage      *Stage
	Now        time.Time
	// See is the view of the cluster; kinds that are left out are not watched.
	See *reconciletest.World
	// Later, when set, reports which keys wait for the other due ones.
	Later func(events.Key) bool
	// Shown, when set, makes the form of an object that the controller sees.
	Shown func(kinds.Kind, metav1.Object) metav1.Object

	// Door, when set, carries out requests; nil: the stage does.
	Door func(plan.Request) plan.Response
	// Before, when set, is called before each turn with the view of the turn.
	Before func(*reconciletest.World)

	due      map[events.Key]time.Time
	failures map[half]int
	// until is when a lane may act again after a failure, unless another program changes an object before;
	// the other lane goes on.
	until    map[half]time.Time
	acts     bool
	sequence uint64
}

// half is a lane of a key.
type half struct {
	key  events.Key
	lane events.Lane
}

// Begin shows the actor all objects, and the changes from now on.
func (a *Actor) Begin(watched ...kinds.Kind) {
	a.due, a.failures, a.until = map[events.Key]time.Time{}, map[half]int{}, map[half]time.Time{}
	a.See = reconciletest.NewWorld(watched...)
	if a.Shown == nil {
		a.Shown = func(_ kinds.Kind, obj metav1.Object) metav1.Object { return obj }
	}
	watches := func(k kinds.Kind) bool {
		return slices.ContainsFunc(watched, func(w kinds.Kind) bool { return w.Name == k.Name })
	}
	a.Stage.change = func(k kinds.Kind, ref events.Ref, was, now metav1.Object) {
		if !watches(k) {
			return
		}
		if now == nil {
			a.See.Remove(k.Name, ref.Namespace, ref.Name)
		} else {
			now = a.Shown(k, now)
			a.See.Put(k, now)
		}
		if was != nil {
			was = a.Shown(k, was)
		}
		a.wake(a.See.Keys(a.Controller, k, was, now)...)
	}
	for _, k := range watched {
		for _, obj := range a.Stage.API.List(k.Name) {
			a.See.Put(k, a.Shown(k, obj))
		}
	}
	for _, k := range watched {
		for _, obj := range a.Stage.API.List(k.Name) {
			a.wake(a.See.Keys(a.Controller, k, nil, a.Shown(k, obj))...)
		}
	}
}

func (a *Actor) wake(keys ...events.Key) {
	for _, key := range keys {
		if a.due[key] = a.Now; !a.acts {
			delete(a.until, half{key, events.LaneWrite})
			delete(a.until, half{key, events.LaneStatus})
		}
	}
}

// turnsAtOnce is how many turns may follow each other at one moment.
const turnsAtOnce = 400

// Until lets the actor act, and advances the time to end.
func (a *Actor) Until(end time.Time) error {
	for turns := 0; ; turns++ {
		key, at, ok := a.next()
		if !ok || at.After(end) {
			a.Now = end
			return nil
		}
		if at.After(a.Now) {
			a.Now, turns = at, 0
		}
		if turns > turnsAtOnce {
			return fmt.Errorf("%v: %w", key, settle.ErrRestless)
		}
		delete(a.due, key)
		if err := a.turn(key); err != nil {
			return err
		}
	}
}

// next is the key of the next turn, and its time.
func (a *Actor) next() (next events.Key, at time.Time, ok bool) {
	for key, due := range a.due {
		due = latest(due, a.Now)
		if !ok || due.Before(at) || due.Equal(at) && a.sooner(key, next) {
			next, at, ok = key, due, true
		}
	}
	return next, at, ok
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sooner reports whether a key has its turn before another one that is due as well.
func (a *Actor) sooner(key, than events.Key) bool {
	if a.Later != nil && a.Later(key) != a.Later(than) {
		return a.Later(than)
	}
	return key.String() < than.String()
}

func (a *Actor) turn(key events.Key) error {
	if a.Before != nil {
		a.Before(a.See)
	}
	d, ok := a.Controller.Ask(a.See, key, a.Now)
	if !ok {
		return nil
	}
	a.sequence++
	for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		part := d.In(lane)
		if len(part.Commands) == 0 {
			continue
		}
		if until := a.until[half{key, lane}]; until.After(a.Now) {
			a.wakeAt(key, until)
			continue
		}
		if err := frozen.Promised(a.Controller.Describe(), key, a.See, part); err != nil {
			return err
		}
		if err := a.carry(key, lane, part); err != nil {
			return err
		}
	}
	if !d.WakeAt.IsZero() {
		a.wakeAt(key, d.WakeAt)
	}
	return nil
}

func (a *Actor) wakeAt(key events.Key, at time.Time) {
	if due, ok := a.due[key]; !ok || at.Before(due) {
		a.due[key] = at
	}
}

// carry carries out the commands of a lane, and remembers the outcome.
func (a *Actor) carry(key events.Key, lane events.Lane, d reconcile.Decision) error {
	t := events.Turn{Controller: a.Controller.Describe().Name, Key: key, Lane: lane, Now: a.Now, Commands: slices.Clone(d.Commands)}
	if own := a.own(key); own != nil {
		t.UID, t.ResourceVersion = own.GetUID(), own.GetResourceVersion()
	}
	t.Pack()
	p, tries := plan.New(t, plan.Options{}), map[int]int{}
	a.acts = true
	defer func() { a.acts = false }()
	results, done := p.Results()
	for ; !done; results, done = p.Results() {
		for _, r := range p.Next() {
			if tries[r.Command]++; tries[r.Command] > TriesUntilSpent*TriesUntilSpent {
				return fmt.Errorf("%s: %w", wrote(r), settle.ErrRestless) // a create with an unknown result is never given up
			}
			answer := a.do(r)
			answer.Spent = tries[r.Command] >= TriesUntilSpent
			p.Answer(r.Command, answer)
		}
	}
	for _, event := range plan.Events(t, results) {
		a.Stage.Told = append(a.Stage.Told, effect.Told(event.About.Name, event.Type, event.Reason, event.Message).String())
	}
	o := events.Outcome{Controller: t.Controller, Key: key, Lane: lane, Turn: a.sequence, UID: t.UID, ResourceVersion: t.ResourceVersion, At: a.Now, Results: results}
	a.See.Remember(o)
	at := half{key, lane}
	if o.OK() { // its changes have made the next turn, answers have not
		if delete(a.failures, at); o.Answers() != 0 {
			a.wake(key)
		}
		return nil
	}
	a.failures[at]++
	a.until[at] = a.Now.Add(min(time.Second<<min(a.failures[at]-1, 9), 5*time.Minute))
	a.wakeAt(key, a.until[at])
	return nil
}

func (a *Actor) do(r plan.Request) plan.Response {
	if a.Door != nil {
		return a.Door(r)
	}
	return a.Stage.API.Do(r)
}

// TriesUntilSpent is after how many tries a command has no time left.
const TriesUntilSpent = 3

func (a *Actor) own(key events.Key) metav1.Object {
	kind := key.Kind
	if owns := a.Controller.Describe().Owns; kind == "" && owns != nil {
		kind = owns.Name
	}
	own, _ := a.See.Get(kind, key.Namespace, key.Name)
	return own
}
