package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

func TestASoundHistoryHolds(t *testing.T) {
	figures, found := Judge(tale().history())
	for _, v := range found {
		t.Error(v)
	}
	want := Figures{Changes: 17, Turns: 8, Commands: 9, Writes: 9, Deltas: 35, Busiest: 3}
	if figures != want {
		t.Errorf("the figures are %+v, want %+v", figures, want)
	}
}

// TestEachRuleBites plays the tale with one mistake at a time.
func TestEachRuleBites(t *testing.T) {
	for _, c := range []struct {
		rule, name string
		// tell continues the tale, and forge changes its history.
		tell  func(*story)
		forge func(*History)
	}{
		{rule: "I1", name: "a pod is missing", tell: func(s *story) { s.dying("q")(); s.remove("q") }},
		{rule: "I1", name: "a pod has lost its owner", tell: func(s *story) { s.remove("t") }},
		{rule: "I1", name: "the status is of an older generation", tell: func(s *story) { s.change("e", func(o *Object) { o.Generation++ }) }},
		{rule: "I1", name: "an object waits for ever", tell: func(s *story) { s.change("e", func(o *Object) { o.Deleting = true }) }},
		{rule: "I1", name: "a namespace lacks its account", tell: func(s *story) {
			s.put(Object{Ref: events.Ref{Kind: namespaces, Name: "n"}, UID: "n"})
		}},
		{rule: "I2", name: "one pod too many", tell: func(s *story) {
			s.turn(setter, "t", operation{events.VerbCreate, "r", s.newPod("r", "t")})
		}},
		{rule: "I2", name: "one replica too many", tell: func(s *story) {
			s.turn(deployer, "e", operation{events.VerbCreate, "u", s.newSet("u", "e", 2)})
		}},
		{rule: "I4", name: "the owner lived", tell: func(s *story) {
			s.turn(sweeper, "q", operation{events.VerbDelete, "q", s.dying("q")})
		}},
		{rule: "I4", name: "the pod was wanted", tell: func(s *story) {
			s.turn(setter, "t", operation{events.VerbDelete, "q", s.dying("q")})
		}},
		{rule: "I4", name: "by name alone", forge: func(h *History) {
			lastWrite(h, "TURN_"+sweeper).OnlyUID = ""
		}},
		{rule: "I6", name: "an update came twice", tell: func(s *story) {
			w := *lastWrite(&s.h, "TURN_"+deployer+".2.")
			w.Revision = s.change("t", func(o *Object) { o.Replicas = 1 })
			s.h.Writes = append(s.h.Writes, w)
		}},
		{rule: "I6", name: "a patch came twice", tell: func(s *story) {
			release := func() int64 {
				return s.change("q", func(o *Object) { o.Finalizers = append(slices.Clone(o.Finalizers), "more") })
			}
			s.turn(sweeper, "q", operation{events.VerbPatch, "q", release})
			w := *lastWrite(&s.h, "TURN_"+sweeper)
			w.Revision = release()
			s.h.Writes = append(s.h.Writes, w)
		}},
		{rule: "I6", name: "two outcomes", forge: func(h *History) { h.Outcomes = append(h.Outcomes, h.Outcomes[0]) }},
		{rule: "I8", name: "two turns at a time", forge: func(h *History) { h.Outcomes[0].At = h.Outcomes[0].At.Add(time.Hour) }},
		{rule: "I8", name: "no outcome in between", forge: func(h *History) { h.Outcomes = h.Outcomes[1:] }},
		{rule: "I6", name: "a repetition had an effect of its own", tell: func(s *story) {
			repeat(s, deployer)
			w := *lastWrite(&s.h, "TURN_"+deployer+".3.")
			w.ID, w.Revision = "TURN_"+deployer+".4.0", s.change("t", func(o *Object) { o.Replicas = 1 })
			s.h.Writes = append(s.h.Writes, w)
		}},
		{rule: "I8", name: "back in version", forge: func(h *History) { turnOf(h, setter, 2).ResourceVersion = "1" }},
		{rule: "I9", name: "a hole", forge: func(h *History) { h.Logs[pods] = slices.Delete(h.Logs[pods], 2, 3) }},
		{rule: "I9", name: "a change is missing", forge: func(h *History) { renumber(h, slices.Delete(h.Logs[pods], 2, 3)) }},
		{rule: "I9", name: "out of order", forge: func(h *History) {
			log := slices.Clone(h.Logs[pods])
			log[1], log[2] = log[2], log[1]
			renumber(h, log)
		}},
		{rule: "I9", name: "twice", forge: func(h *History) {
			renumber(h, slices.Insert(slices.Clone(h.Logs[pods]), 2, h.Logs[pods][1]))
		}},
		{rule: "I9", name: "a deletion that a relist did not find", forge: func(h *History) {
			log := slices.Clone(h.Logs[pods])
			i := slices.IndexFunc(log, func(e Entry) bool { return e.Op == events.Gone })
			// The log has a gap that covers the change, and records the change nevertheless.
			gone := log[i].Revision
			log = slices.Replace(log, i, i+1, Entry{Op: events.Gap, Ref: log[0].Ref, Revision: gone}, Entry{Op: events.Mark, Ref: log[0].Ref, Revision: gone})
			renumber(h, log)
		}},
		{rule: "I9", name: "another state behind the last mark", forge: func(h *History) {
			log := slices.Clone(h.Logs[pods])
			again := log[slices.IndexFunc(log, func(e Entry) bool { return e.Op == events.Gone })-1]
			again.Sync = true
			renumber(h, append(log, again))
		}},
		{rule: "I9", name: "a reader begins behind an object", forge: func(h *History) {
			log := slices.Clone(h.Logs[pods])
			log[len(log)-1].Since++
			renumber(h, log)
		}},
		{rule: "I10", name: "its own writes unseen", forge: func(h *History) { turnOf(h, setter, 2).Seen[pods] = 1 }},
		{rule: "I11", name: "a loop", forge: func(h *History) {
			w := *lastWrite(h, "TURN_"+setter)
			for range mostWrites {
				h.Writes = append(h.Writes, w)
			}
		}},
		{rule: "I12", name: "two controllers", tell: func(s *story) {
			s.change("q", func(o *Object) { o.Owners = append(o.Owners, ownedBy("e")...) })
		}},
		{rule: "I12", name: "from one controller to another", tell: func(s *story) {
			s.change("q", func(o *Object) { o.Owners = ownedBy("e") })
		}},
		{rule: "I12", name: "before its dependents", tell: func(s *story) {
			s.change("e", func(o *Object) { o.Deleting, o.Finalizers = true, []string{metav1.FinalizerDeleteDependents} })
			s.remove("e")
		}},
		{rule: "I12", name: "let go by the collector, and a user wanted it gone as well", tell: func(s *story) {
			s.change("e", func(o *Object) { o.Deleting, o.Finalizers = true, []string{metav1.FinalizerDeleteDependents} })
			wantGone(s, "e", "")
			s.turn(sweeper, "e", operation{events.VerbPatch, "e", func() int64 { return s.revisionOf("e") }})
			s.remove("e")
		}},
		{rule: "I12", name: "before its dependents, by another controller that knew that it waits for them", tell: func(s *story) {
			s.change("e", func(o *Object) { o.Deleting, o.Finalizers = true, []string{metav1.FinalizerDeleteDependents} })
			s.turn(deployer, "e", operation{events.VerbDelete, "e", func() int64 { s.remove("e"); return 0 }})
		}},
		{rule: "I12", name: "before its dependents, and a user wanted another one gone", tell: func(s *story) {
			s.change("e", func(o *Object) { o.Deleting, o.Finalizers = true, []string{metav1.FinalizerDeleteDependents} })
			wantGone(s, "e", "another")
			s.remove("e")
		}},
		{rule: "I14", name: "a write without an outcome", forge: func(h *History) { h.Outcomes = h.Outcomes[:len(h.Outcomes)-1] }},
		{rule: "I14", name: "a write that is said to have failed", forge: func(h *History) { h.Outcomes[0].Results[0].Status = events.Conflict }},
		{rule: "I14", name: "an outcome without a write", forge: func(h *History) { h.Writes = h.Writes[2:] }},
		{rule: "I14", name: "a write for no turn", forge: func(h *History) { h.Turns = h.Turns[:len(h.Turns)-1] }},
		{rule: "I14", name: "under another name", forge: func(h *History) { lastWrite(h, "TURN_"+setter).As = "millrace-writer" }},
		{rule: "I14", name: "a create without a write", tell: func(s *story) { s.newPod("r", "t")() }},
		{rule: "I15", name: "the canary sings", forge: func(h *History) { h.Leaks = []string{"a log"} }},
		{rule: "I17", name: "set aside", forge: func(h *History) {
			parked := h.Turns[0]
			parked.Lane, parked.Sequence = events.LanePark, 99
			h.Turns = append(h.Turns, parked)
		}},
		{rule: "unsure", name: "nothing dropped the answer", forge: func(h *History) { h.Outcomes[0].Results[0].Unsure = true }},
		{rule: "unsure", name: "long after the fault", forge: func(h *History) {
			h.Outcomes[0].Results[0].Unsure = true
			h.Faults = []Fault{faultAt("kill", "writer-1", h.Turns[0].At.Add(-time.Minute))}
		}},
		{rule: "unsure", name: "after a dead connection was found", forge: func(h *History) {
			h.Outcomes[0].Results[0].Unsure = true
			h.Faults = []Fault{faultAt(halfOpen, "writer-1>api", h.Turns[0].At.Add(-deadFor-afterUnsure-1))}
		}},
		{rule: "unsure", name: "a fault of something else", forge: func(h *History) {
			h.Outcomes[0].Results[0].Unsure = true
			h.Faults = []Fault{faultAt("kill", "watcher-1", h.Turns[0].At)}
		}},
		{rule: "unsure", name: "a turn that was slow, and few others were", forge: func(h *History) { slowTurns(h, manySlow-1, "") }},
		{rule: "unsure", name: "a turn that was slow with others, and lost an answer", forge: func(h *History) { slowTurns(h, manySlow, "TURN_x.1.0") }},
		{rule: "gaps", name: "a log that does not come, and no server of the bus was away", forge: func(h *History) {
			at := confess(h, "damaged: of EV_pods nothing came for 20s behind message 27 of 260")
			h.Faults = []Fault{faultAt("kill", "kube-apiserver", at)}
		}},
		{rule: "gaps", name: "without a fault", forge: func(h *History) { confess(h, "the API server has forgotten the changes") }},
		{rule: "gaps", name: "a fault that takes nothing", forge: func(h *History) {
			at := confess(h, "the API server has forgotten the changes")
			h.Faults = []Fault{faultAt("kill", "watcher-1", at)}
		}},
		{rule: "gaps", name: "damage, and no disk was", forge: func(h *History) {
			at := confess(h, "a message of the log is damaged")
			h.Faults = []Fault{faultAt("kill", "bus-1", at)}
		}},
		{rule: "gaps", name: "a log that cannot be read, and no server of the bus was away", forge: func(h *History) {
			at := confess(h, "a part of the log cannot be read")
			h.Faults = []Fault{faultAt("kill", "kube-apiserver", at)}
		}},
		{rule: "gaps", name: "a log that lacks an object, and no disk was lost", forge: func(h *History) {
			at := confess(h, "the log tells of 41 objects, 0 of them damaged, where its last message says 42")
			h.Faults = []Fault{faultAt("kill", "bus-3", at)}
		}},
		{rule: "gaps", name: "too much is hidden", tell: func(s *story) {
			for range mostHidden + 2 {
				s.change("q", func(o *Object) { o.Observed++ })
			}
		}, forge: func(h *History) {
			log := slices.Clone(h.Logs[pods])
			last := log[len(log)-2].Revision
			log = slices.DeleteFunc(log, func(e Entry) bool {
				return e.Op == events.Is && e.UID == "q" && e.Revision >= last-mostHidden-1 && e.Revision < last
			})
			log[len(log)-2].Sync = true
			at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
			gap := Entry{Op: events.Gap, Ref: log[0].Ref, Revision: last, At: at, Why: "the API server has forgotten the changes"}
			renumber(h, slices.Insert(log, len(log)-1, gap))
			h.Faults = []Fault{faultAt("kill", "kube-apiserver", at)}
		}},
		{rule: "unread", name: "beyond the end of the log", forge: func(h *History) { turnOf(h, setter, 2).Seen[pods] = 1000 }},
		{rule: "unread", name: "nothing is said", forge: func(h *History) { turnOf(h, setter, 2).Seen = nil }},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			s := tale()
			if c.tell != nil {
				c.tell(s)
			}
			h := s.history()
			if c.forge != nil {
				c.forge(h)
			}
			_, found := Judge(h)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.rule }) {
				t.Errorf("%s was not broken, but %v", c.rule, found)
			}
		})
	}
}

// TestEveryRuleIsNamed: violations are grouped by the names of rules.
func TestEveryRuleIsNamed(t *testing.T) {
	names := map[string]int{}
	for _, r := range Rules() {
		if names[r.Name]++; names[r.Name] > 1 || r.Text == "" {
			t.Errorf("rule %q is there %d times, and says %q", r.Name, names[r.Name], r.Text)
		}
	}
}

// TestWhatIsNoViolation: histories that look wrong and are not.
func TestWhatIsNoViolation(t *testing.T) {
	for _, c := range []struct {
		name  string
		tell  func(*story)
		forge func(*History)
	}{
		{name: "decided before it was scaled down", tell: func(s *story) {
			s.change("e", func(o *Object) { o.Replicas = 2 })
			s.turn(deployer, "e", operation{events.VerbUpdate, "t", func() int64 { return s.change("t", func(o *Object) { o.Replicas, o.Total = 2, 2 }) }})
			s.turn(setter, "t", operation{events.VerbCreate, "r", func() int64 {
				s.change("t", func(o *Object) { o.Replicas = 1 }) // no replica knows of it yet
				return s.newPod("r", "t")()
			}})
			s.change("t", func(o *Object) { o.Replicas = 2 })
			s.change("e", func(o *Object) { o.Total, o.Updated, o.Available = 2, 2, 2 })
		}},
		{name: "deleted as one too many while a user deleted another one", tell: func(s *story) {
			s.change("e", func(o *Object) { o.Replicas = 2 })
			s.turn(deployer, "e", operation{events.VerbUpdate, "t", func() int64 { return s.change("t", func(o *Object) { o.Replicas = 2 }) }})
			s.turn(setter, "t", operation{events.VerbCreate, "r", s.newPod("r", "t")})
			s.change("e", func(o *Object) { o.Replicas = 1 })
			s.turn(deployer, "e", operation{events.VerbUpdate, "t", func() int64 { return s.change("t", func(o *Object) { o.Replicas = 1 }) }})
			s.turn(setter, "t", operation{events.VerbDelete, "r", func() int64 { s.dying("q")(); return s.dying("r")() }})
			s.remove("q")
			s.remove("r")
			s.turn(setter, "t", operation{events.VerbCreate, "v", s.newPod("v", "t")})
		}},
		{name: "a repeated delete of what is on its way out", forge: func(h *History) {
			h.Writes = append(h.Writes, *lastWrite(h, "TURN_"+sweeper+".2."))
		}},
		{name: "a repeated patch that finds nothing to change", tell: func(s *story) {
			s.turn(sweeper, "q", operation{events.VerbPatch, "q", func() int64 {
				return s.change("q", func(o *Object) { o.Finalizers = []string{"more"} })
			}})
			w := *lastWrite(&s.h, "TURN_"+sweeper)
			w.Revision = s.change("q", func(o *Object) { o.Observed++ }) // of another writer
			s.h.Writes = append(s.h.Writes, w)
		}},
		{name: "an owner that goes before a dependent of which the log has not told", tell: func(s *story) {
			s.change("e", func(o *Object) { o.Deleting, o.Finalizers = true, []string{metav1.FinalizerDeleteDependents} })
			s.turn(sweeper, "e", operation{events.VerbPatch, "e", func() int64 { return s.revisionOf("e") }})
			s.h.Turns[len(s.h.Turns)-1].Seen[replicaSets] = 1
			s.remove("e")
			s.turn(sweeper, "t", operation{events.VerbDelete, "t", func() int64 { s.remove("t"); return 0 }})
			s.turn(sweeper, "q", operation{events.VerbDelete, "q", s.dying("q")})
			s.remove("q")
		}},
		{name: "an owner that a user no longer has wait for its dependents", tell: func(s *story) {
			s.change("e", func(o *Object) { o.Deleting, o.Finalizers = true, []string{metav1.FinalizerDeleteDependents} })
			wantGone(s, "e", "")
			s.remove("e")
			s.turn(sweeper, "t", operation{events.VerbDelete, "t", func() int64 { s.remove("t"); return 0 }})
			s.turn(sweeper, "q", operation{events.VerbDelete, "q", s.dying("q")})
			s.remove("q")
		}},
		{name: "an owner that another controller of ours deletes before it sees that it waits for its dependents", tell: func(s *story) {
			s.turn(deployer, "e", operation{events.VerbDelete, "e", func() int64 {
				s.change("e", func(o *Object) { o.Deleting, o.Finalizers = true, []string{metav1.FinalizerDeleteDependents} })
				s.remove("e")
				return 0
			}})
			s.turn(sweeper, "t", operation{events.VerbDelete, "t", func() int64 { s.remove("t"); return 0 }})
			s.turn(sweeper, "q", operation{events.VerbDelete, "q", s.dying("q")})
			s.remove("q")
		}},
		{name: "a turn that no writer had in flight and that is said again", tell: func(s *story) { repeat(s, deployer) }},
		{name: "a collector comes second", tell: func(s *story) {
			s.change("e", func(o *Object) { o.Replicas = 0 })
			s.turn(deployer, "e", operation{events.VerbUpdate, "t", func() int64 { return s.change("t", func(o *Object) { o.Replicas, o.Total = 0, 0 }) }})
			s.turn(setter, "t", operation{events.VerbDelete, "q", s.dying("q")})
			s.turn(sweeper, "q", operation{events.VerbDelete, "q", func() int64 { return s.revisionOf("q") }})
			s.remove("q")
			s.change("e", func(o *Object) { o.Total, o.Updated, o.Available = 0, 0, 0 })
		}},
		{name: "a change that a gap confesses and a relist makes good", forge: func(h *History) {
			log := slices.Clone(h.Logs[pods])
			i := slices.IndexFunc(log, func(e Entry) bool { return e.Op == events.Gone })
			gone := log[i]
			gone.Sync = true
			gap := Entry{Op: events.Gap, Ref: log[0].Ref, Revision: gone.Revision, At: h.Turns[0].At, Why: "the API server has forgotten the changes"}
			renumber(h, slices.Replace(log, i, i+1, gone, gap))
			h.Faults = []Fault{faultAt("kill", "kube-apiserver", gap.At)}
		}},
		{name: "a watcher that was away for long", forge: func(h *History) {
			at := confess(h, "the API server has forgotten the changes")
			h.Faults = []Fault{{Kind: "pause", Target: "watcher-1", Began: at.Add(-longAway), Ended: at}}
		}},
		{name: "a log that cannot be read after a server of the bus was away", forge: func(h *History) {
			at := confess(h, "a part of the log cannot be read")
			h.Faults = []Fault{faultAt("kill", "bus-3", at.Add(-afterGap/2))}
		}},
		{name: "a log that does not come after a server of the bus was away", forge: func(h *History) {
			at := confess(h, "damaged: of EV_pods nothing came for 20s behind message 27 of 260")
			h.Faults = []Fault{faultAt("kill", "bus-3", at.Add(-afterGap/2))}
		}},
		{name: "many turns that came late, and one that cannot know who began it", forge: func(h *History) { slowTurns(h, manySlow, "") }},
		{name: "a disk that was lost", forge: func(h *History) {
			at := confess(h, "the log was made anew")
			h.Faults = []Fault{faultAt(diskLost, "bus-1", at)}
			turnOf(h, setter, 2).Seen[pods] = 1000
		}},
		{name: "a part of a disk that was lost", forge: func(h *History) {
			at := confess(h, "a part of the log cannot be read")
			h.Faults = []Fault{faultAt(diskLost, "bus-1", at)}
		}},
		{name: "an outcome that admits that it is not known", forge: func(h *History) {
			h.Faults = []Fault{faultAt("half-open", "writer-1>api", h.Turns[0].At)}
			h.Outcomes[0].Results[0].Status, h.Outcomes[0].Results[0].Unsure = events.Conflict, true
		}},
		{name: "an outcome that is not known, by a connection that had not been found dead", forge: func(h *History) {
			h.Outcomes[0].Results[0].Status, h.Outcomes[0].Results[0].Unsure = events.Conflict, true
			f := faultAt(halfOpen, "writer-1>api", h.Turns[0].At.Add(-deadFor-afterUnsure))
			f.Ended = f.Began.Add(deadFor - time.Second)
			h.Faults = []Fault{f}
		}},
		{name: "a delete of which it is not known whose it was", forge: func(h *History) {
			h.Writes = slices.DeleteFunc(h.Writes, func(w Write) bool { return w.ID == "TURN_"+setter+".2.0" })
			turnOutcome(h, setter, 2).Results[0].Unsure = true
			h.Faults = []Fault{faultAt("kill", "kube-apiserver", turnOf(h, setter, 2).At)}
		}},
		{name: "a server that gave up too late", forge: func(h *History) {
			for i := range h.Writes {
				if w := &h.Writes[i]; w.Ended && w.ID == "TURN_"+setter+".1.0" {
					w.Code = 504
				}
			}
		}},
		{name: "a server that was killed before it noted what it did", forge: func(h *History) {
			h.Writes = slices.DeleteFunc(h.Writes, func(w Write) bool { return w.Ended && w.ID == "TURN_"+setter+".1.0" })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tale()
			if c.tell != nil {
				c.tell(s)
			}
			h := s.history()
			if c.forge != nil {
				c.forge(h)
			}
			_, found := Judge(h)
			for _, v := range found {
				t.Error(v)
			}
		})
	}
}

// faultAt is a fault that ends at once.
func faultAt(kind, target string, at time.Time) Fault {
	return Fault{Kind: kind, Target: target, Began: at, Ended: at}
}

// wantGone is a user's delete that removes an object at once: the response has no version.
func wantGone(s *story, uid, only types.UID) {
	s.h.Writes = append(s.h.Writes, Write{
		ID: "a user's", Foreign: true, As: "kubernetes-admin", Verb: "delete", Ref: s.live[uid].Ref, OnlyUID: only, At: s.tick(), Ended: true, Code: 200,
	})
}

// slowTurns makes the last outcome late, with an unsure result for a command with that request, and
// adds others late outcomes.
func slowTurns(h *History, others int, request string) {
	o := &h.Outcomes[len(h.Outcomes)-1]
	began, ended := o.At, o.At.Add(2*givenAgain)
	o.At, o.Results[0].Unsure, o.Results[0].AuditID = ended, true, request
	for i := range others {
		other := fmt.Sprint("other-", i)
		h.Turns = append(h.Turns, Turn{Sequence: 1, At: began, Turn: events.Turn{Controller: other, Lane: events.LaneStatus}})
		h.Outcomes = append(h.Outcomes, Outcome{Sequence: 1, At: ended, Outcome: events.Outcome{Controller: other, Lane: events.LaneStatus, Turn: 1}})
	}
}

// confess appends a gap that hides nothing to the log of pods, and returns its time.
func confess(h *History, why string) time.Time {
	log := slices.Clone(h.Logs[pods])
	end := log[len(log)-1]
	gap := Entry{Op: events.Gap, Ref: end.Ref, Revision: end.Revision, At: turnOf(h, setter, 2).At, Why: why}
	renumber(h, append(log, gap))
	return gap.At
}

// repeat stores the last turn of a controller again, and makes its outcome that of the
// repetition.
func repeat(s *story, controller string) {
	last := *turnOf(&s.h, controller, s.turns[controller])
	s.turns[controller]++
	last.Repeats, last.Sequence, last.At = last.Sequence, s.turns[controller], s.tick()
	s.h.Turns = append(s.h.Turns, last)
	for i := range s.h.Outcomes {
		if o := &s.h.Outcomes[i]; o.Controller == controller && o.Turn == last.Repeats {
			o.Turn, o.At = last.Sequence, s.tick()
		}
	}
}

// lastWrite is the last ended write whose audit ID has a prefix.
func lastWrite(h *History, prefix string) *Write {
	for i := len(h.Writes) - 1; i >= 0; i-- {
		if w := &h.Writes[i]; w.Ended && len(w.ID) > len(prefix) && w.ID[:len(prefix)] == prefix {
			return w
		}
	}
	panic("no write " + prefix)
}

func turnOf(h *History, controller string, sequence uint64) *Turn {
	for i := range h.Turns {
		if h.Turns[i].Controller == controller && h.Turns[i].Sequence == sequence {
			return &h.Turns[i]
		}
	}
	panic(fmt.Sprint("no turn ", controller, sequence))
}

func turnOutcome(h *History, controller string, turn uint64) *Outcome {
	i := slices.IndexFunc(h.Outcomes, func(o Outcome) bool { return o.Controller == controller && o.Turn == turn })
	return &h.Outcomes[i]
}

// renumber makes a forged log of pods contiguous.
func renumber(h *History, log []Entry) {
	for i := range log {
		log[i].Sequence = uint64(i + 1)
	}
	h.Logs[pods] = log
}
