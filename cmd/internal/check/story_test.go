package check

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

const (
	deployer = "deployment-controller"
	setter   = "replicaset-controller"
	sweeper  = "garbage-collector-controller"
)

var identities = map[string]string{
	deployer: "system:serviceaccount:kube-system:deployment-controller", setter: setController, sweeper: collector,
	"sts": statefulSetController, "ds": daemonSetController, "rc": rcController, "job": jobController,
	"cron": "system:serviceaccount:kube-system:cronjob-controller", "budget": "system:serviceaccount:kube-system:disruption-controller",
}

// story writes all three sources of a correct run. The logs record each change at
// once.
type story struct {
	h        History
	now      time.Time
	revision int64
	live     map[types.UID]Object
	turns    map[string]uint64
	outcomes map[string]uint64
}

func newStory() *story {
	s := &story{
		now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), revision: 100, live: map[types.UID]Object{},
		turns: map[string]uint64{}, outcomes: map[string]uint64{},
	}
	s.h.Logs = map[kinds.Name][]Entry{}
	for _, kind := range []kinds.Name{pods, replicaSets, deployments, statefulSets, daemonSets, jobs, cronJobs, replicationControllers, budgets} {
		s.tell(Entry{Op: events.Mark, Ref: events.Ref{Kind: kind}, Revision: s.revision})
	}
	return s
}

func (s *story) tick() time.Time {
	s.now = s.now.Add(100 * time.Millisecond)
	return s.now
}

func (s *story) tell(e Entry) {
	log := s.h.Logs[e.Ref.Kind]
	e.Sequence, e.At = uint64(len(log)+1), s.now
	s.h.Logs[e.Ref.Kind] = append(log, e)
}

// put stores an object; change changes one.
func (s *story) put(o Object) int64 {
	s.revision++
	_, known := s.live[o.UID]
	o.Created = !known
	s.live[o.UID] = o
	s.h.Changes = append(s.h.Changes, Change{Revision: s.revision, Object: o})
	s.tell(Entry{Op: events.Is, Ref: o.Ref, UID: o.UID, Revision: s.revision})
	return s.revision
}

func (s *story) change(uid types.UID, how func(*Object)) int64 {
	o := s.live[uid]
	o.Owners = slices.Clone(o.Owners)
	how(&o)
	return s.put(o)
}

func (s *story) remove(uid types.UID) int64 {
	s.revision++
	o := s.live[uid]
	o.Created = false
	delete(s.live, uid)
	s.h.Changes = append(s.h.Changes, Change{Revision: s.revision, Gone: true, Object: o})
	s.tell(Entry{Op: events.Gone, Ref: o.Ref, UID: uid, Revision: s.revision})
	return s.revision
}

// seen is the current position of the logs.
func (s *story) seen() events.Position {
	p := events.Position{}
	for kind, log := range s.h.Logs {
		p[kind] = uint64(len(log))
	}
	return p
}

// operation is one command of a turn, and its effect on the storage.
type operation struct {
	verb events.Verb
	uid  types.UID
	do   func() int64 // returns the revision; 0 for an immediate removal
}

// turn adds a turn about an object, with its writes and its outcome.
func (s *story) turn(controller string, about types.UID, operations ...operation) {
	s.turns[controller]++
	key := s.live[about]
	t := Turn{Sequence: s.turns[controller], At: s.tick(), Turn: events.Turn{
		Controller: controller, Lane: events.LaneWrite, Key: events.Key{Namespace: key.Ref.Namespace, Name: key.Ref.Name},
		Kind: key.Ref.Kind, UID: about, ResourceVersion: fmt.Sprint(s.revisionOf(about)), Seen: s.seen(), Because: "told so",
	}}
	o := Outcome{Outcome: events.Outcome{Controller: controller, Key: t.Key, Lane: t.Lane, Turn: t.Sequence}}
	for i, d := range operations {
		ref := s.live[d.uid].Ref
		w := Write{ID: fmt.Sprintf("TURN_%s.%d.%d", controller, t.Sequence, i), As: identities[controller], Verb: string(d.verb), At: s.tick()}
		s.h.Writes = append(s.h.Writes, w)
		if d.verb == events.VerbDelete {
			w.OnlyUID = d.uid
		}
		w.Revision = d.do()
		if w.Ref = ref; ref.Name == "" {
			w.Ref = s.live[d.uid].Ref
		}
		s.h.Writes[len(s.h.Writes)-1].Ref = w.Ref
		if w.Ended, w.Code, w.At = true, 200, s.tick(); w.Revision != 0 {
			w.UID = d.uid
		}
		s.h.Writes = append(s.h.Writes, w)
		t.Commands = append(t.Commands, events.Command{Verb: d.verb, Kind: w.Ref.Kind, Namespace: w.Ref.Namespace, Name: w.Ref.Name})
		r := events.Result{Command: i, Status: events.Applied, Ref: w.Ref, UID: d.uid, AuditID: w.ID, Removed: w.Revision == 0}
		if w.Revision != 0 {
			r.Version = fmt.Sprint(w.Revision)
		}
		o.Results = append(o.Results, r)
	}
	s.outcomes[controller]++
	o.Sequence, o.At = s.outcomes[controller], s.tick()
	s.h.Turns, s.h.Outcomes = append(s.h.Turns, t), append(s.h.Outcomes, o)
}

func (s *story) revisionOf(uid types.UID) int64 {
	for i := len(s.h.Changes) - 1; i >= 0; i-- {
		if s.h.Changes[i].Object.UID == uid {
			return s.h.Changes[i].Revision
		}
	}
	return 0
}

// history ends the story: the last mark of each log says since when every object has been recorded.
func (s *story) history() *History {
	for kind, log := range s.h.Logs {
		last := map[events.Ref]uint64{}
		for _, e := range log {
			if last[e.Ref] = e.Sequence; e.Op != events.Is {
				delete(last, e.Ref)
			}
		}
		since := uint64(len(log) + 1)
		for _, sequence := range last {
			since = min(since, sequence)
		}
		s.tell(Entry{Op: events.Mark, Ref: events.Ref{Kind: kind}, Revision: s.revision, Since: since})
	}
	return &s.h
}

func ref(kind kinds.Name, name string) events.Ref {
	return events.Ref{Kind: kind, Namespace: "default", Name: name}
}

func ownedBy(uid types.UID) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{UID: uid, Name: string(uid), Controller: &yes, BlockOwnerDeletion: &yes}}
}

func (s *story) newSet(uid, owner types.UID, replicas int32) func() int64 {
	return func() int64 {
		return s.put(Object{Ref: ref(replicaSets, string(uid)), UID: uid, Owners: ownedBy(owner), Replicas: replicas})
	}
}

func (s *story) newPod(uid, owner types.UID) func() int64 {
	return func() int64 {
		return s.put(Object{Ref: ref(pods, string(uid)), UID: uid, Owners: ownedBy(owner), Active: true})
	}
}

// dying is the first half of a pod's deletion; the second is remove.
func (s *story) dying(uid types.UID) func() int64 {
	return func() int64 {
		return s.change(uid, func(o *Object) { o.Deleting, o.Active = true, false })
	}
}

// tale is a Deployment of two that is scaled to one and deleted, and another one
// that stays.
func tale() *story {
	s := newStory()
	s.put(Object{Ref: ref(deployments, "d"), UID: "d", Replicas: 2, Surge: 1})
	s.turn(deployer, "d", operation{events.VerbCreate, "s", s.newSet("s", "d", 2)})
	s.turn(setter, "s", operation{events.VerbCreate, "p1", s.newPod("p1", "s")}, operation{events.VerbCreate, "p2", s.newPod("p2", "s")})
	s.change("d", func(o *Object) { o.Replicas = 1 })
	s.turn(deployer, "d", operation{events.VerbUpdate, "s", func() int64 { return s.change("s", func(o *Object) { o.Replicas = 1 }) }})
	s.turn(setter, "s", operation{events.VerbDelete, "p2", s.dying("p2")})
	s.remove("p2")
	s.remove("d")
	s.turn(sweeper, "s", operation{events.VerbDelete, "s", func() int64 { s.remove("s"); return 0 }})
	s.turn(sweeper, "p1", operation{events.VerbDelete, "p1", s.dying("p1")})
	s.remove("p1")

	s.put(Object{Ref: ref(deployments, "e"), UID: "e", Replicas: 1, Surge: 1})
	s.turn(deployer, "e", operation{events.VerbCreate, "t", s.newSet("t", "e", 1)})
	s.turn(setter, "t", operation{events.VerbCreate, "q", s.newPod("q", "t")})
	s.change("t", func(o *Object) { o.Total = 1 })
	s.change("e", func(o *Object) { o.Total, o.Updated, o.Available = 1, 1, 1 })
	return s
}
