package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// owner stores a workload.
func (s *story) owner(kind kinds.Name, uid types.UID, how func(*Object)) {
	o := Object{Ref: ref(kind, string(uid)), UID: uid}
	how(&o)
	s.put(o)
}

// makes adds a turn that creates a pod, which is ready at once.
func (s *story) makes(controller string, owner, uid types.UID, how func(*Object)) {
	s.turn(controller, owner, operate(events.VerbCreate, uid, func() int64 {
		o := Object{Ref: ref(pods, string(uid)), UID: uid, Owners: ownedBy(owner), Active: true, Ready: true, Index: -1}
		how(&o)
		return s.put(o)
	}))
}

func operate(verb events.Verb, uid types.UID, do func() int64) operation {
	return operation{verb, uid, do}
}

// takes adds a turn that deletes pods.
func (s *story) takes(controller string, owner types.UID, uids ...types.UID) {
	var all []operation
	for _, uid := range uids {
		all = append(all, operate(events.VerbDelete, uid, func() int64 {
			return s.change(uid, func(o *Object) { o.Deleting, o.Active, o.Ready = true, false, false })
		}))
	}
	s.turn(controller, owner, all...)
	for _, uid := range uids {
		s.remove(uid)
	}
}

func (s *story) unready(uid types.UID) { s.change(uid, func(o *Object) { o.Ready = false }) }

// ready makes a pod ready again; the log has that in a list that has not ended yet.
func (s *story) ready(uid types.UID) {
	s.change(uid, func(o *Object) { o.Ready = true })
	log := s.h.Logs[pods]
	log[len(log)-1].Sync = true
}

func member(i int32) func(*Object)        { return func(o *Object) { o.Index = i } }
func onNode(node string) func(*Object)    { return func(o *Object) { o.Node = node } }
func labelledAs(app string) func(*Object) { return func(o *Object) { o.App = app } }
func plain(*Object)                       {}

// sets has a StatefulSet with three pods.
func sets(ordered bool) *story {
	s := newStory()
	s.owner(statefulSets, "w", func(o *Object) { o.Replicas, o.Ordered = 3, ordered })
	for i := range int32(3) {
		s.makes("sts", "w", types.UID(fmt.Sprint("w-", i)), member(i))
	}
	return s
}

// daemons has a DaemonSet on three nodes, of which one may be unavailable.
func daemons() *story {
	s := newStory()
	s.owner(daemonSets, "a", func(o *Object) { o.Replicas, o.Unavailable = 3, 1 })
	s.put(Object{Ref: ref(kinds.ControllerRevisions.Name, "a-1"), UID: "a-1", Owners: ownedBy("a")}) // on no node
	for _, n := range []string{"x", "y", "z"} {
		s.makes("ds", "a", types.UID("a-"+n), onNode(n))
	}
	return s
}

// working has a Job with three completions and parallelism two, of which one has ended.
func working() *story {
	s := newStory()
	s.owner(jobs, "j", func(o *Object) { o.Replicas, o.Completions, o.Retries = 2, 3, 3 })
	s.makes("job", "j", "j-1", plain)
	s.makes("job", "j", "j-2", plain)
	s.change("j-1", func(o *Object) { o.Active, o.Ready, o.EndedWell = false, false, true })
	return s
}

// rolling has a Deployment with four replicas, of which one may be unavailable, and an old
// ReplicaSet of four pods.
func rolling() *story {
	s := newStory()
	s.put(Object{Ref: ref(deployments, "d"), UID: "d", Replicas: 4, Surge: 1, Unavailable: 1})
	s.turn(deployer, "d", operation{events.VerbCreate, "s", s.newSet("s", "d", 4)})
	for i := range 4 {
		s.makes(setter, "s", types.UID(fmt.Sprint("s-", i)), plain)
	}
	s.change("s", func(o *Object) { o.Available = 4 })
	return s
}

func (s *story) shrinks(to int32) {
	s.turn(deployer, "d", operate(events.VerbUpdate, "s", func() int64 { return s.change("s", func(o *Object) { o.Replicas = to }) }))
}

// guarded has two pods of an app, and a budget that requires one.
func guarded() *story {
	s := newStory()
	s.owner(replicaSets, "r", func(o *Object) { o.Replicas = 2 })
	s.makes(setter, "r", "r-1", labelledAs("app"))
	s.makes(setter, "r", "r-2", labelledAs("app"))
	s.owner(budgets, "b", func(o *Object) { o.App = "app" })
	return s
}

func (s *story) says(healthy, desired, allowed int32) {
	s.turn("budget", "b", operate(events.VerbUpdate, "b", func() int64 {
		return s.change("b", func(o *Object) { o.Healthy, o.Desired, o.Allowed = healthy, desired, allowed })
	}))
}

// cron has a CronJob with one active Job.
func cron(forbids bool) *story {
	s := newStory()
	s.owner(cronJobs, "c", func(o *Object) { o.Forbids = forbids })
	s.runs("c-1", "12:00")
	return s
}

func (s *story) runs(uid types.UID, moment string) {
	s.turn("cron", "c", operate(events.VerbCreate, uid, func() int64 {
		return s.put(Object{Ref: ref(jobs, string(uid)), UID: uid, Owners: ownedBy("c"), Replicas: 1, Completions: 1, Moment: moment})
	}))
}

// TestWorkloadRulesBite plays what each kind of workload must not do, and a similar case that is
// allowed.
func TestWorkloadRulesBite(t *testing.T) {
	for _, c := range []struct {
		rule, name string // no rule: allowed
		story      *story
		tell       func(*story)
	}{
		{"", "a member anew", sets(true), func(s *story) { s.takes("sts", "w", "w-2"); s.makes("sts", "w", "v-2", member(2)) }},
		{"I2", "an ordinal too many", sets(true), func(s *story) { s.makes("sts", "w", "w-3", member(3)) }},
		{"", "an ordinal that was asked for when it was decided", sets(true), func(s *story) {
			s.turn("sts", "w", operate(events.VerbCreate, "w-3", func() int64 {
				s.change("w", func(o *Object) { o.Replicas = 4 })
				return s.put(Object{Ref: ref(pods, "w-3"), UID: "w-3", Owners: ownedBy("w"), Active: true, Index: 3})
			}))
		}},
		{"I2", "out of order", sets(true), func(s *story) { s.takes("sts", "w", "w-2"); s.unready("w-0"); s.makes("sts", "w", "v-2", member(2)) }},
		{"", "out of order in parallel", sets(false), func(s *story) { s.takes("sts", "w", "w-2"); s.unready("w-0"); s.makes("sts", "w", "v-2", member(2)) }},
		{"I5", "a member while another is not ready", sets(true), func(s *story) { s.unready("w-0"); s.takes("sts", "w", "w-2") }},
		{"I5", "in parallel, while one above is not ready", sets(false), func(s *story) { s.unready("w-2"); s.takes("sts", "w", "w-1") }},
		{"I5", "two members at once", sets(false), func(s *story) { s.takes("sts", "w", "w-2"); s.takes("sts", "w", "w-1") }},
		{"", "a member that was not ready itself", sets(true), func(s *story) { s.unready("w-0"); s.takes("sts", "w", "w-0") }},
		{"I5", "not from the end", sets(true), func(s *story) { s.change("w", func(o *Object) { o.Replicas = 1 }); s.takes("sts", "w", "w-1") }},
		{"", "from the end", sets(true), func(s *story) {
			s.change("w", func(o *Object) { o.Replicas = 1 })
			s.takes("sts", "w", "w-2")
			s.takes("sts", "w", "w-1")
		}},

		{"I2", "two on a node", daemons(), func(s *story) { s.makes("ds", "a", "b-x", onNode("x")) }},
		{"", "two on a node that may surge", daemons(), func(s *story) {
			s.change("a", func(o *Object) { o.Surge = 1 })
			s.makes("ds", "a", "b-x", onNode("x"))
		}},
		{"", "one of the nodes", daemons(), func(s *story) { s.takes("ds", "a", "a-x"); s.makes("ds", "a", "b-x", onNode("x")) }},
		{"I5", "two nodes at once", daemons(), func(s *story) { s.takes("ds", "a", "a-x", "a-y") }},
		{"I5", "a node while another is without", daemons(), func(s *story) { s.unready("a-x"); s.takes("ds", "a", "a-y") }},
		{"", "one that is not ready", daemons(), func(s *story) { s.unready("a-x"); s.takes("ds", "a", "a-x") }},
		{"", "a node while another one is ready again, as a list tells", daemons(), func(s *story) {
			s.unready("a-x")
			s.ready("a-x")
			s.takes("ds", "a", "a-y")
		}},
		{"", "a member while another one is ready again, as a list tells", sets(true), func(s *story) {
			s.unready("w-0")
			s.ready("w-0")
			s.takes("sts", "w", "w-2")
		}},

		{"I2", "more than are parallel", working(), func(s *story) { s.makes("job", "j", "j-3", plain); s.makes("job", "j", "j-4", plain) }},
		{"", "as many as are parallel", working(), func(s *story) { s.makes("job", "j", "j-3", plain) }},
		{"I4", "a pod of a Job that is wanted", working(), func(s *story) { s.takes("job", "j", "j-2") }},
		{"", "a pod of a Job that is paused", working(), func(s *story) {
			s.change("j", func(o *Object) { o.Idle = true })
			s.takes("job", "j", "j-2")
		}},
		{"runs", "a completion that was none", working(), func(s *story) { s.change("j", func(o *Object) { o.Succeeded = 2 }) }},
		{"", "a completion", working(), func(s *story) { s.change("j", func(o *Object) { o.Succeeded = 1 }) }},
		{"runs", "an index twice", working(), func(s *story) {
			s.makes("job", "j", "j-3", member(0))
			s.change("j-3", func(o *Object) { o.EndedWell, o.Active = true, false })
			s.change("j-2", func(o *Object) { o.EndedWell, o.Active, o.Index = true, false, 0 })
			s.change("j", func(o *Object) { o.Succeeded = 3 })
		}},
		{"I1", "a Job that never ends", working(), plainStory},

		{"", "a minute after the other", cron(false), func(s *story) { s.runs("c-2", "12:01") }},
		{"runs", "a minute twice", cron(false), func(s *story) { s.runs("c-2", "12:00") }},
		{"runs", "beside one at work", cron(true), func(s *story) { s.runs("c-2", "12:01") }},
		{"", "after one that has ended", cron(true), func(s *story) { s.change("c-1", func(o *Object) { o.Done = true }); s.runs("c-2", "12:01") }},

		{"", "within what may be lacking", rolling(), func(s *story) { s.shrinks(3) }},
		{"I5", "below what must stay", rolling(), func(s *story) { s.shrinks(2) }},
		{"", "a new ReplicaSet without pods, while one that was adopted is too much", rolling(), func(s *story) {
			s.put(Object{Ref: ref(replicaSets, "o"), UID: "o", Replicas: 3})
			s.turn(deployer, "d", operate(events.VerbPatch, "o", func() int64 { return s.change("o", func(o *Object) { o.Owners = ownedBy("d") }) }))
			s.turn(deployer, "d", operation{events.VerbCreate, "n", s.newSet("n", "d", 0)})
		}},
		{"", "with a status of a larger size", rolling(), func(s *story) {
			s.turn(deployer, "d", operation{events.VerbCreate, "n", s.newSet("n", "d", 1)})
			s.change("n", func(o *Object) { o.Available = 2 })
			s.shrinks(2)
		}},
		{"I5", "with a status of its size", rolling(), func(s *story) {
			s.turn(deployer, "d", operation{events.VerbCreate, "n", s.newSet("n", "d", 1)})
			s.change("n", func(o *Object) { o.Available = 1 })
			s.shrinks(1)
		}},
		{"", "what is not available", rolling(), func(s *story) { s.change("s", func(o *Object) { o.Available = 2 }); s.shrinks(2) }},
		{"", "what is not available, by a list that has not ended yet", rolling(), func(s *story) {
			s.change("s", func(o *Object) { o.Available = 2 })
			log := s.h.Logs[replicaSets]
			log[len(log)-1].Sync = true
			s.shrinks(2)
		}},
		{"", "as a user asked", rolling(), func(s *story) { s.change("d", func(o *Object) { o.Replicas = 2 }); s.shrinks(2) }},
		{"I5", "a ready pod and not one that is not", rolling(), func(s *story) { s.shrinks(3); s.unready("s-0"); s.takes(setter, "s", "s-1") }},
		{"", "a pod that is not ready", rolling(), func(s *story) { s.shrinks(3); s.unready("s-0"); s.takes(setter, "s", "s-0") }},

		{"", "a budget that is true", guarded(), func(s *story) { s.says(2, 1, 1) }},
		{"I5", "a budget that lets too many go", guarded(), func(s *story) { s.says(2, 1, 2) }},
		{"I5", "a budget that counts what is not there", guarded(), func(s *story) { s.unready("r-1"); s.says(2, 1, 1) }},
		{"I5", "a budget that lets one go on a count that is old", guarded(), func(s *story) { s.says(2, 2, 0); s.unready("r-1"); s.says(2, 1, 1) }},
		{"", "a budget that lets none go and counts nothing anew", guarded(), func(s *story) { s.says(2, 1, 1); s.unready("r-1"); s.says(2, 1, 0) }},
		{"I5", "a budget that lets none go and counts one more", guarded(), func(s *story) { s.says(1, 1, 0); s.unready("r-1"); s.says(2, 2, 0) }},
		{"", "a budget that counts what a list has told so far", guarded(), func(s *story) {
			s.unready("r-1")
			s.change("r-1", func(o *Object) { o.Ready = true })
			log := s.h.Logs[pods]
			log[len(log)-1].Sync = true
			s.says(2, 1, 1)
		}},
		{"I5", "a budget that counts what a list has told otherwise", guarded(), func(s *story) {
			s.unready("r-1")
			log := s.h.Logs[pods]
			log[len(log)-1].Sync = true
			s.says(2, 1, 1)
		}},

		{"I7", "a change that is seen an hour later", guarded(), func(s *story) {
			s.change("b", func(o *Object) { o.Generation = 1 })
			s.now = s.now.Add(time.Hour)
			s.change("b", func(o *Object) { o.Observed = 1 })
		}},
		{"", "a change that is seen after a fault of an hour", guarded(), func(s *story) {
			s.h.Faults = []Fault{{Kind: "pause", Target: "watcher-1", Began: s.now, Ended: s.now.Add(time.Hour)}}
			s.change("b", func(o *Object) { o.Generation = 1 })
			s.now = s.now.Add(time.Hour)
			s.change("b", func(o *Object) { o.Observed = 1 })
		}},
		{"I11", "written for nothing", guarded(), func(s *story) { s.writes(45) }},
		{"", "written for what happened", guarded(), func(s *story) {
			for range 30 {
				s.change("r-1", func(o *Object) { o.Observed++ })
			}
			s.writes(45)
		}},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			c.tell(c.story)
			_, found := Judge(c.story.history())
			found = slices.DeleteFunc(found, func(v Violation) bool { return v.Rule == "I1" && c.rule != "I1" }) // the end is left open
			switch {
			case c.rule == "" && len(found) > 0:
				t.Error(found)
			case c.rule != "" && !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.rule }):
				t.Errorf("%s was not broken, but %v", c.rule, found)
			}
		})
	}
}

func plainStory(*story) {}

// writes writes the status of the ReplicaSet n times within a minute.
func (s *story) writes(n int) {
	s.now = s.now.Truncate(time.Minute).Add(time.Minute)
	for range n {
		s.turn(setter, "r", operate(events.VerbUpdate, "r", func() int64 { return s.change("r", func(o *Object) { o.Observed++ }) }))
	}
}

// TestWhatIsJudgedBeginsSince: after a restore, the turns before it and their effects are not
// judged, and later ones are.
func TestWhatIsJudgedBeginsSince(t *testing.T) {
	s := tale()
	s.turn(setter, "t", operation{events.VerbDelete, "q", s.dying("q")}) // which was wanted
	s.remove("q")
	s.turn(setter, "t", operation{events.VerbCreate, "v", s.newPod("v", "t")})
	h := s.history()
	if _, found := Judge(h); !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == "I4" }) {
		t.Fatalf("nothing is wrong to begin with: %v", found)
	}
	h.Since = s.tick()
	if _, found := Judge(h); len(found) > 0 {
		t.Errorf("what is past is judged: %v", found)
	}
	h.Since = h.Turns[len(h.Turns)-1].At.Add(1)
	if _, found := Judge(h); len(found) > 0 {
		t.Errorf("what a turn of before has created since is judged: %v", found)
	}
	h.Since = s.tick()
	s.turn(setter, "t", operation{events.VerbDelete, "v", s.dying("v")})
	s.remove("v")
	if _, found := Judge(&s.h); !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == "I4" }) {
		t.Errorf("what is not past is not judged: %v", found)
	}
}
