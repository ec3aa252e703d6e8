package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/shard"
)

// town is an API server with one set, its streams, a writer, and replicas of the toy
// controller's engine. Every step is drawn: which replica folds, which one owns the key, which
// call is answered, which replica crashes.
type town struct {
	t        *rapid.T
	set      *appsv1.ReplicaSet
	pods     map[string]types.UID
	version  int
	creates  int
	unheard  []func()             // changes that the watcher has not reported, in order
	seen     map[types.UID]uint64 // sequence of each create in the log; 0 while it is unreported
	logs     map[kinds.Name][]events.Message
	turns    []events.Turn
	last     map[events.Lane]uint64 // sequence of the last turn
	outcomes []events.Outcome
	done     map[uint64]bool // turns that have an outcome
	written  int
	now      time.Time
	replicas []*replica
}

type replica struct {
	town     *town
	memory   *cache.Cache
	engine   *Engine
	followed map[kinds.Name]bool
	folded   map[kinds.Name]int
	goal     map[kinds.Name]int
	heard    int
	calls    []func()
}

func newTown(t *rapid.T, pods int32) *town {
	w := &town{
		t: t, pods: map[string]types.UID{}, logs: map[kinds.Name][]events.Message{},
		last: map[events.Lane]uint64{}, done: map[uint64]bool{}, now: epoch,
		seen: map[types.UID]uint64{},
	}
	w.set = aSet("web", 0, pods, 0, "")
	w.saySet()
	w.watch(1)
	for range 2 {
		w.replicas = append(w.replicas, nil)
	}
	for i := range w.replicas {
		w.crash(i)
	}
	return w
}

func (w *town) say(kind kinds.Kind, op events.Op, obj object) {
	w.unheard = append(w.unheard, func() {
		at := uint64(len(w.logs[kind.Name]) + 1)
		w.logs[kind.Name] = append(w.logs[kind.Name], delta(kind, op, obj, at))
		if w.seen[obj.GetUID()] == 0 {
			w.seen[obj.GetUID()] = at
		}
	})
}

// watch reports the next changes.
func (w *town) watch(n int) (moved bool) {
	for ; n > 0 && len(w.unheard) > 0; n-- {
		tell := w.unheard[0]
		w.unheard = w.unheard[1:]
		tell()
		moved = true
	}
	return moved
}

func (w *town) next() string {
	w.version++
	return strconv.Itoa(w.version)
}

func (w *town) saySet() {
	w.set = w.set.DeepCopy()
	w.set.ResourceVersion = w.next()
	w.say(kinds.ReplicaSets.Kind, events.Is, w.set)
}

func (w *town) kill(name string) {
	pod := aPod(name, "web", 0)
	pod.UID, pod.ResourceVersion = w.pods[name], w.next()
	delete(w.pods, name)
	w.say(kinds.Pods.Kind, events.Gone, pod)
}

// crash replaces a replica by a new one. The calls of the old one are never answered.
func (w *town) crash(i int) {
	r := &replica{
		town: w, memory: cache.New(), heard: len(w.outcomes),
		followed: map[kinds.Name]bool{}, folded: map[kinds.Name]int{}, goal: map[kinds.Name]int{},
	}
	r.memory.Register(toy().Describe())
	r.engine = New(toy(), r.memory, r, Settings{}, w.now)
	r.engine.Shut(kinds.ReplicaSets.Name)
	r.engine.Shut(kinds.Pods.Name)
	w.replicas[i] = r
}

// follow begins to follow a kind, maybe long after the engine has started and heard outcomes.
func (r *replica) follow(kind kinds.Name) bool {
	if r.followed[kind] {
		return false
	}
	r.followed[kind] = true
	r.memory.Follow(map[kinds.Name]kinds.Kind{
		kinds.ReplicaSets.Name: kinds.ReplicaSets.Kind, kinds.Pods.Name: kinds.Pods.Kind,
	}[kind])
	if r.goal[kind] = len(r.town.logs[kind]); r.goal[kind] == 0 {
		r.engine.Open(kind)
	}
	return true
}

func (r *replica) call(run func()) { r.calls = append(r.calls, run) }

func (r *replica) Store(t events.Turn, expect uint64) {
	r.call(func() {
		w := r.town
		if w.last[t.Lane] != expect {
			r.engine.Stored(t.Key, t.Lane, 0, bus.ErrOvertaken)
			return
		}
		if before := w.last[t.Lane]; before > 0 && t.Lane == events.LaneWrite && !w.done[before] {
			w.t.Fatalf("write turn stored while turn %d is under way", before)
		}
		for uid, at := range w.seen {
			if t.Lane == events.LaneWrite && (at == 0 || t.Seen[kinds.Pods.Name] < at) && uid != w.set.UID {
				w.t.Fatalf("write turn stored before %s was seen at %d: %+v", uid, at, t)
			}
		}
		w.turns = append(w.turns, t)
		sequence := uint64(len(w.turns))
		w.last[t.Lane] = sequence
		r.engine.Stored(t.Key, t.Lane, sequence, nil)
	})
}

func (r *replica) Recall(key events.Key, lane events.Lane) {
	r.call(func() {
		w, past := r.town, Past{}
		if past.Sequence = w.last[lane]; past.Sequence > 0 {
			past.Turn = &w.turns[past.Sequence-1]
		}
		for i := range w.outcomes {
			if w.outcomes[i].Lane == lane {
				past.Outcome = &w.outcomes[i]
			}
		}
		r.engine.Recalled(key, lane, past, nil)
	})
}

func (r *replica) Schedule(x events.Wake) { r.call(func() { r.engine.Scheduled(x.Key, x.At, nil) }) }

func (r *replica) Reach(kind kinds.Name) {
	r.call(func() { r.engine.Reached(kind, uint64(len(r.town.logs[kind])), nil) })
}

// fold folds the next messages of a kind at once.
func (r *replica) fold(kind kinds.Name, n int) bool {
	if r.follow(kind) {
		return true
	}
	log, at := r.town.logs[kind], r.folded[kind]
	n = min(n, len(log)-at)
	if n <= 0 {
		return false
	}
	r.folded[kind] = at + n
	r.memory.Fold(kind, log[at:at+n])
	r.engine.Folded(kind)
	if r.folded[kind] >= r.goal[kind] {
		r.engine.Open(kind)
	}
	return true
}

func (r *replica) hear() bool {
	if r.heard == len(r.town.outcomes) {
		return false
	}
	r.heard++
	r.engine.Outcome(uint64(r.heard), r.town.outcomes[r.heard-1])
	return true
}

func (r *replica) answer(i int) bool {
	if len(r.calls) == 0 {
		return false
	}
	i %= len(r.calls)
	run := r.calls[i]
	r.calls = slices.Delete(r.calls, i, i+1)
	run()
	return true
}

// write carries out the next turn.
func (w *town) write(limit int) bool {
	if w.written == len(w.turns) {
		return false
	}
	turn := w.turns[w.written]
	w.written++
	o := events.Outcome{Controller: "toy", Key: turn.Key, Lane: turn.Lane, Turn: uint64(w.written)}
	for i, c := range turn.Commands {
		result := w.apply(c)
		result.Command, result.Ref = i, c.Ref()
		o.Results = append(o.Results, result)
	}
	if len(w.pods) > limit {
		w.t.Fatalf("%d pods, want at most %d", len(w.pods), limit)
	}
	w.done[o.Turn] = true
	w.outcomes = append(w.outcomes, o)
	return true
}

func (w *town) apply(c events.Command) events.Result {
	switch {
	case c.Verb == events.VerbCreate:
		if uid, ok := w.pods[c.Name]; ok {
			return events.Result{Status: events.Unchanged, UID: uid}
		}
		w.creates++
		pod := aPod(c.Name, "web", 0)
		pod.UID, pod.ResourceVersion = types.UID(fmt.Sprint("created-", w.creates)), w.next()
		w.pods[c.Name], w.seen[pod.UID] = pod.UID, 0
		w.say(kinds.Pods.Kind, events.Is, pod)
		return events.Result{Status: events.Applied, UID: pod.UID, Version: pod.ResourceVersion}
	case c.Verb == events.VerbDelete:
		if w.pods[c.Name] != c.If.UID {
			return events.Result{Status: events.Unchanged, Removed: true, UID: c.If.UID}
		}
		w.kill(c.Name)
		return events.Result{Status: events.Applied, Removed: true, UID: c.If.UID}
	case c.If.ResourceVersion != w.set.ResourceVersion:
		return events.Result{Status: events.Conflict}
	default:
		obj, err := kinds.Decode(kinds.ReplicaSets.Kind, kinds.JSON, c.Body)
		if err != nil {
			w.t.Fatal(err)
		}
		w.set = w.set.DeepCopy()
		w.set.Status = obj.(*appsv1.ReplicaSet).Status
		w.saySet()
		return events.Result{Status: events.Applied, UID: w.set.UID, Version: w.set.ResourceVersion}
	}
}

func (w *town) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, r := range w.replicas {
		r.engine.Advance(w.now)
	}
}

// settle completes everything that still can happen, with the first replica as the owner of the
// key.
func (w *town) settle(limit int) {
	w.replicas[1].engine.Own(0)
	w.replicas[0].engine.Own(shard.All)
	for quiet := 0; quiet < 1000; {
		moved := w.write(limit)
		moved = w.watch(1) || moved
		for _, r := range w.replicas {
			for _, kind := range []kinds.Name{kinds.ReplicaSets.Name, kinds.Pods.Name} {
				moved = r.fold(kind, 100) || moved
			}
			moved = r.hear() || moved
			moved = r.answer(0) || moved
			moved = r.engine.Step() || moved
		}
		if quiet++; moved {
			quiet = 0
		}
		w.pass(20 * time.Millisecond)
	}
	for i, r := range w.replicas {
		for _, e := range r.engine.sorted() {
			if e.wants() {
				w.t.Fatalf("replica %d: %v dirty %v known %v recalling %d write %+v status %+v", i, e.key, e.dirty, e.known, e.recalling, e.write, e.status)
			}
		}
	}
}

func TestReplicasNeverOverlapNorForget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 4).Draw(t, "pods")
		w := newTown(t, int32(limit))
		some := rapid.IntRange(0, 1000)
		who := func(t *rapid.T) *replica { return w.replicas[some.Draw(t, "who")%len(w.replicas)] }
		kind := rapid.SampledFrom([]kinds.Name{kinds.ReplicaSets.Name, kinds.Pods.Name})
		actions := map[string]func(*rapid.T){
			"fold":   func(t *rapid.T) { who(t).fold(kind.Draw(t, "kind"), 1+some.Draw(t, "n")%3) },
			"own":    func(t *rapid.T) { who(t).engine.Own(shard.All * shard.Set(some.Draw(t, "share")%2)) },
			"step":   func(t *rapid.T) { who(t).engine.Step() },
			"answer": func(t *rapid.T) { who(t).answer(some.Draw(t, "call")) },
			"hear":   func(t *rapid.T) { who(t).hear() },
			"write":  func(*rapid.T) { w.write(limit) },
			"watch":  func(t *rapid.T) { w.watch(1 + some.Draw(t, "n")%3) },
			"pass":   func(t *rapid.T) { w.pass(time.Duration(some.Draw(t, "ms")) * time.Millisecond) },
			"crash":  func(t *rapid.T) { w.maybeCrash(t, some) },
			"kill":   func(t *rapid.T) { w.maybeKill(t, some) },
			"steps": func(t *rapid.T) {
				for r := who(t); r.engine.Step(); {
				}
			},
			"answers": func(t *rapid.T) {
				for r := who(t); r.answer(0); {
				}
			},
			"folds": func(t *rapid.T) { who(t).fold(kind.Draw(t, "kind"), 100) },
		}
		// A replica that starts in the middle of a turn needs many steps to make a wrong
		// decision.
		names := rapid.SampledFrom(slices.Sorted(maps.Keys(actions)))
		for range rapid.IntRange(1, 250).Draw(t, "steps") {
			actions[names.Draw(t, "action")](t)
		}
		w.settle(limit)
		if len(w.pods) != limit || int(w.set.Status.Replicas) != limit {
			t.Fatalf("%d pods, status %d; want %d", len(w.pods), w.set.Status.Replicas, limit)
		}
	})
}

func (w *town) maybeCrash(t *rapid.T, some *rapid.Generator[int]) {
	if n := some.Draw(t, "crash"); n%8 == 0 {
		w.crash(n / 8 % len(w.replicas))
	}
}

func (w *town) maybeKill(t *rapid.T, some *rapid.Generator[int]) {
	names := make([]string, 0, len(w.pods))
	for name := range w.pods {
		names = append(names, name)
	}
	if slices.Sort(names); len(names) > 0 {
		w.kill(names[some.Draw(t, "victim")%len(names)])
	}
}
