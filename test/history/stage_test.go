package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// change is one change of the cluster, as a watch would send it.
type change struct {
	kind kinds.Kind
	op   events.Op
	obj  metav1.Object
	at   uint64 // its index among the changes of its kind
}

// player runs a controller: it receives changes when the test delivers them, and acts on its cache.
type player interface {
	hear(changes ...change)
	// work does everything that is due now.
	work()
}

// stage is a cluster whose changes arrive when the test delivers them.
type stage struct {
	*testing.T
	api     *apiserver.API
	now     time.Time
	served  []kinds.Kind
	known   map[events.Ref]metav1.Object
	changes []change // all so far
	counts  map[kinds.Name]uint64
	// arrive receives each change as it happens; nil: the test delivers them.
	arrive  player
	creates int            // pods that were created in all
	codes   map[int]int    // responses to writes, by HTTP status
	record  *record        // the turns and outcomes on the bus
	before  func()         // called before each request of a controller; may be nil
	minute  map[string]int // creates, by minute of the story
}

// newStage is a cluster that serves some kinds; the default is ReplicaSets and Pods.
func newStage(t *testing.T, served ...kinds.Kind) *stage {
	if len(served) == 0 {
		served = []kinds.Kind{kinds.ReplicaSets.Kind, kinds.Pods.Kind}
	}
	s := &stage{
		T: t, now: reconciletest.Now, served: served,
		known: map[events.Ref]metav1.Object{}, counts: map[kinds.Name]uint64{}, codes: map[int]int{}, record: newRecord(), minute: map[string]int{},
	}
	s.api = apiserver.New(func() time.Time { return s.now }, s.served...)
	return s
}

// notice collects the new changes, oldest first.
func (s *stage) notice() {
	var fresh []change
	there := map[events.Ref]bool{}
	for _, kind := range s.served {
		for _, obj := range s.api.List(kind.Name) {
			ref := events.Ref{Kind: kind.Name, Namespace: obj.GetNamespace(), Name: obj.GetName()}
			there[ref] = true
			old, known := s.known[ref]
			switch {
			case known && old.GetUID() == obj.GetUID() && old.GetResourceVersion() == obj.GetResourceVersion():
				continue
			case known && old.GetUID() != obj.GetUID():
				fresh = append(fresh, change{kind: kind, op: events.Gone, obj: old})
			}
			fresh = append(fresh, change{kind: kind, op: events.Is, obj: obj})
			s.known[ref] = obj
		}
	}
	for _, ref := range slices.SortedFunc(maps.Keys(s.known), func(a, b events.Ref) int { return cmp.Compare(a.String(), b.String()) }) {
		if !there[ref] {
			kind := s.served[slices.IndexFunc(s.served, func(k kinds.Kind) bool { return k.Name == ref.Kind })]
			fresh = append(fresh, change{kind: kind, op: events.Gone, obj: s.known[ref]})
			delete(s.known, ref)
		}
	}
	for i := range fresh {
		s.counts[fresh[i].kind.Name]++
		fresh[i].at = s.counts[fresh[i].kind.Name]
	}
	s.changes = append(s.changes, fresh...)
	if s.arrive != nil {
		s.arrive.hear(fresh...)
	}
}

// since returns the changes of a kind from an index on.
func (s *stage) since(from int, kind kinds.Name) []change {
	return slices.DeleteFunc(slices.Clone(s.changes[from:]), func(c change) bool { return c.kind.Name != kind })
}

// request is a request of a writer to the API server.
func (s *stage) request(r plan.Request) plan.Response {
	if s.before != nil && r.Verb.Writes() {
		s.before()
		s.notice()
	}
	answer := s.api.Do(r)
	if r.Verb.Writes() {
		s.codes[answer.Code]++
		if r.Verb == plan.Create && answer.Code == 200 {
			s.creates++
			s.minute[s.now.Format("15:04")]++
		}
	}
	s.notice()
	return answer
}

// carry carries out a turn, as the writer does.
func (s *stage) carry(turn events.Turn) []events.Result {
	s.Helper()
	p := plan.New(turn, plan.Options{})
	for range 10_000 {
		for _, r := range p.Next() {
			answer := s.request(r)
			answer.Spent = r.Try >= 3
			p.Answer(r.Command, answer)
		}
		if results, done := p.Results(); done {
			return results
		}
	}
	s.Fatalf("the turn %+v has no end", turn)
	return nil
}

// Actions of the user.

func (s *stage) create(kind kinds.Kind, obj metav1.Object) {
	s.Helper()
	body, err := json.Marshal(obj)
	if err != nil {
		s.Fatal(err)
	}
	answer := s.api.Do(plan.Request{
		Verb: plan.Create, Kind: kind.Name, Version: kind.Version, Namespace: obj.GetNamespace(), Name: obj.GetName(), Body: body,
	})
	if answer.Code != 200 {
		s.Fatalf("create %s: %+v", obj.GetName(), answer)
	}
	s.notice()
}

func (s *stage) remove(kind kinds.Kind, name string) {
	s.Helper()
	answer := s.api.Do(plan.Request{
		Verb: plan.Delete, Kind: kind.Name, Version: kind.Version, Namespace: reconciletest.Namespace, Name: name, Delete: &metav1.DeleteOptions{},
	})
	if answer.Code != 200 {
		s.Fatalf("delete %s: %+v", name, answer)
	}
	s.notice()
}

func (s *stage) edit(kind kinds.Kind, name string, how func(metav1.Object)) {
	s.api.Change(events.Ref{Kind: kind.Name, Namespace: reconciletest.Namespace, Name: name}, how)
	s.notice()
}

// touch changes an annotation that no controller reads.
func (s *stage) touch(kind kinds.Kind, name string) {
	s.edit(kind, name, func(o metav1.Object) {
		o.SetAnnotations(map[string]string{"touched": strconv.Itoa(len(s.changes))})
	})
}

// alive is the number of live pods of an owner.
func (s *stage) alive(owner types.UID) (n int) {
	for _, obj := range s.api.List(kinds.Pods.Name) {
		p := obj.(*corev1.Pod)
		if ref := metav1.GetControllerOfNoCopy(p); ref != nil && ref.UID == owner && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed {
			n++
		}
	}
	return n
}

func (s *stage) uid(kind kinds.Kind, name string) types.UID {
	s.Helper()
	obj := s.api.Get(events.Ref{Kind: kind.Name, Namespace: reconciletest.Namespace, Name: name})
	if obj == nil {
		s.Fatalf("there is no %s %s", kind.Kind, name)
	}
	return obj.GetUID()
}

// informed is a player that works as upstream's controllers do: it has a cache that trusts every event, a
// queue of names, immediate requests, and expectations. It records its creates by the name of their owner,
// and leaves that owner alone until it has seen them, or for five minutes.
type informed struct {
	*stage
	controller reconcile.Any
	cache      *reconciletest.World
	queue      []events.Key
	expected   map[events.Key]expectation
	// retries is how many failures in a row are retried at once.
	retries int
	// named is true for StatefulSets: pods have fixed names, deletes name only the pod, and there are no
	// expectations.
	named bool
}

type expectation struct {
	creates int
	until   time.Time
}

func (s *stage) informed(controller reconcile.Any) *informed {
	return &informed{stage: s, controller: controller, cache: reconciletest.NewWorld(s.served...), expected: map[events.Key]expectation{}}
}

func (p *informed) hear(changes ...change) {
	for _, c := range changes {
		was, _ := p.cache.Get(c.kind.Name, c.obj.GetNamespace(), c.obj.GetName())
		now := c.obj
		if c.op == events.Gone {
			p.cache.Remove(c.kind.Name, c.obj.GetNamespace(), c.obj.GetName())
			now = nil
		} else {
			p.cache.Put(c.kind, c.obj)
		}
		for _, key := range p.cache.Keys(p.controller, c.kind, was, now) {
			p.enqueue(key)
			if e := p.expected[key]; c.kind.Name == kinds.Pods.Name && was == nil && now != nil && e.creates > 0 {
				e.creates--
				p.expected[key] = e
			}
		}
	}
}

func (p *informed) enqueue(key events.Key) {
	if !slices.Contains(p.queue, key) {
		p.queue = append(p.queue, key)
	}
}

func (p *informed) work() {
	for len(p.queue) > 0 {
		key := p.queue[0]
		p.queue = p.queue[1:]
		p.sync(key)
	}
}

func (p *informed) sync(key events.Key) {
	d, ok := p.controller.Ask(p.cache, key, p.now)
	if !ok {
		delete(p.expected, key) // deleted: a successor starts without expectations
		return
	}
	if e := p.expected[key]; e.creates > 0 && p.now.Before(e.until) {
		d = d.In(events.LaneStatus)
	}
	if len(d.Commands) == 0 {
		return
	}
	for i := range d.Commands {
		switch c := &d.Commands[i]; {
		case p.named && c.Verb == events.VerbDelete:
			c.If = &events.If{UID: p.uid(kinds.Pods.Kind, c.Name)} // the pod that has the name now, of any owner
		case !p.named && c.Verb == events.VerbCreate:
			c.Name = fmt.Sprintf("%s-%05d", key.Name, p.stage.creates+i) // stands for a random suffix
		}
	}
	turn := events.Turn{Controller: p.controller.Describe().Name, Key: key, Commands: d.Commands}
	created := 0
	for _, r := range p.carry(turn) {
		if turn.Commands[r.Command].Verb == events.VerbCreate && r.OK() {
			created++
		} else if !r.OK() && p.retries > 0 {
			p.retries--
			p.enqueue(key)
		}
	}
	if created > 0 && !p.named {
		p.expected[key] = expectation{creates: created, until: p.now.Add(5 * time.Minute)}
	}
}
