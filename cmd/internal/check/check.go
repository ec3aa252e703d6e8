// Package check judges a run of Millrace by its records. It shares no code with the
// services that it judges, except the vocabulary. It compares three sources:
//
//   - the storage: every version of every object from the first revision on, as
//     etcd has it, so that no restart of an API server leaves a hole;
//   - the API server's audit log: who wrote what, under which condition, and
//     what was answered;
//   - the record: everything that Millrace's own streams hold.
//
// [Judge] is a pure function of the three. Each rule is named after the invariant
// that it looks after, and each violation says what it rests on.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// History is everything that was recorded of a run.
type History struct {
	Changes  []Change  // the storage, in the order of revisions
	Writes   []Write   // the audit log, in its order: what Millrace asked for, and deletes of others
	Turns    []Turn    // of all controllers; each controller's in the order of its stream
	Outcomes []Outcome // likewise
	// Logs are the logs of the kinds, in their order.
	Logs map[kinds.Name][]Entry
	// Leaks are the places where the value of the canary Secret was found.
	Leaks []string
	// Faults are the injected faults, and the starts of processes: each unsure result and each
	// gap must have one of them as its cause.
	Faults []Fault
	// Since is the begin of the judged time. It excludes the time before a restore of the storage
	// or a loss of the record, and turns that were in flight then. Zero: the whole record.
	Since time.Time

	// earlier are the objects that turns before Since create: the creates may be carried out later.
	earlier map[events.Ref]bool
}

// Change is one revision of the storage.
type Change struct {
	Revision int64
	// Gone is true for a removal; Object is then the removed object.
	Gone   bool
	Object Object
}

// Object has the fields of an object that the rules use.
type Object struct {
	Ref        events.Ref
	UID        types.UID
	Created    bool // by this change
	Deleting   bool
	Finalizers []string
	Owners     []metav1.OwnerReference

	// Active pods have neither ended nor been deleted.
	Active bool
	// Replicas is the number of pods that a workload requests, of a Job its parallelism.
	// Surge is how many more it may have temporarily, and Unavailable how many fewer.
	Replicas, Surge, Unavailable int32
	// Generation, and fields of the status.
	Generation, Observed      int64
	Total, Updated, Available int32
	// Empty is true for a ConfigMap that lacks the root certificate it is for.
	Empty bool

	// Ready pods are active and have the condition Ready. EndedWell pods have succeeded. Node is
	// the node of a pod, or the one that it must run on. App is the value of its label app, or
	// the one that a budget selects. Index is the ordinal of a StatefulSet's pod, or the index
	// of a Job's; -1 for none.
	Ready, EndedWell bool
	Node, App        string
	Index            int32
	// Claims are the names of the PersistentVolumeClaims of a pod that is active and has a node.
	Claims []string
	// Start is a StatefulSet's first ordinal. Ordered is true if it creates and deletes its pods
	// one after the other.
	Start   int32
	Ordered bool
	// Completions is the number that a Job requests, Succeeded the number in its status, Retries
	// how many pods may fail. Done is true for a Job that has ended, Idle for a suspended one.
	// Moment is the scheduled time of a CronJob's Job.
	Completions, Succeeded, Retries int32
	Done, Idle                      bool
	Moment                          string
	// Forbids is true for a CronJob with the concurrency policy Forbid.
	Forbids bool
	// The status of a PodDisruptionBudget.
	Healthy, Desired, Allowed int32
}

// Write is one write request of Millrace, at one audit stage.
type Write struct {
	ID          string // the audit id: the place of the turn, and the command
	Foreign     bool   // not of Millrace
	User        string // who asked
	As          string // the impersonated identity
	Verb        string
	Ref         events.Ref
	Subresource string
	At          time.Time
	// Ended is false for a request that was received and, according to the log, never
	// answered, because its server was killed.
	Ended  bool
	Code   int
	DryRun bool
	// UID and Revision are those of the object in the response.
	UID      types.UID
	Revision int64
	// OnlyUID is the UID precondition of a delete.
	OnlyUID types.UID
}

// Stored is true for a write that the API server carried out.
func (w Write) Stored() bool { return w.Ended && w.Code >= 200 && w.Code < 300 && !w.DryRun }

func (w Write) String() string {
	return fmt.Sprintf("%s %s of %v%s as %s (%d at %s)", w.ID, w.Verb, w.Ref, sub(w.Subresource), w.As, w.Code, w.At.Format(clock))
}

func sub(resource string) string {
	if resource == "" {
		return ""
	}
	return "/" + resource
}

const clock = "15:04:05.000"

// Turn is a stored turn, without the bodies of its commands.
type Turn struct {
	Sequence uint64
	At       time.Time // when it was stored
	events.Turn
}

func (t Turn) place() place { return place{t.Controller, t.Sequence} }

func (t Turn) String() string {
	return fmt.Sprintf("turn %d of %s about %v (%s at %s: %s)", t.Sequence, t.Controller, t.Key, t.Lane, t.At.Format(clock), t.Because)
}

// Outcome is a stored outcome.
type Outcome struct {
	Sequence uint64
	At       time.Time
	events.Outcome
}

func (o Outcome) place() place { return place{o.Controller, o.Turn} }

// place is where a turn is stored.
type place struct {
	controller string
	sequence   uint64
}

func (p place) String() string { return fmt.Sprintf("turn %d of %s", p.sequence, p.controller) }

// Entry is one message of a kind's log.
type Entry struct {
	Sequence uint64
	Op       events.Op
	Ref      events.Ref
	UID      types.UID
	Revision int64
	Epoch    uint64
	Sync     bool
	Since    uint64    `json:",omitzero"`  // of a mark: since which message every existing object has been recorded
	At       time.Time `json:",omitzero"`  // when it was stored
	Why      string    `json:",omitempty"` // the reason of a gap
}

// Violation is a rule that was broken.
type Violation struct {
	Rule     string   `json:"rule"`
	Text     string   `json:"text"`
	Evidence []string `json:"evidence,omitempty"`
}

func (v Violation) String() string {
	text := v.Rule + ": " + v.Text
	for _, e := range v.Evidence {
		text += "\n      " + e
	}
	return text
}

// Rule is one thing that must hold.
type Rule struct {
	Name  string // the invariant
	Text  string
	judge func(*books) []Violation
}

// Rules are all rules.
func Rules() []Rule { return slices.Clone(rules) }

var rules = []Rule{
	{"I1", "every workload has what it asks for, and nothing is left of what is gone", converged},
	{"I2", "no workload has more pods, and no Deployment more replicas, than allowed", bounded},
	{"I4", "nothing with a live owner was deleted, nothing by name alone, and no pod that was wanted", spared},
	{"I5", "no controller takes more of what is available than a user allows", available},
	{"I6", "no command had two effects", once},
	{"I7", "every change of a specification is acted on in time", prompt},
	{"I8", "turns that act never overlap, and none goes back in version", ordered},
	{"I9", "each log is contiguous, ordered, unique and complete, and says what the storage said", logged},
	{"I10", "no turn was decided on a view older than the key's own writes", seen},
	{"I11", "no object is written too often", paced},
	{"I12", "owners and finalizers change by the rules, and dependents go first where that was asked for", owned},
	{"I14", "the audit log and the record tell of the same writes", complete},
	{"I15", "the value of a Secret is nowhere", secret},
	{"I17", "nothing was set aside", unparked},
	{"runs", "no run of a CronJob was made twice or beside one that forbids it, and each completion of a Job counts once", ran},
	{"unsure", "a result is unsure only where a fault may have dropped its answer, or taken its turn from a writer", doubtful},
	{"gaps", "a log has a gap only where a fault took changes from its watcher, and it hides few", confessed},
	{"unread", "each turn says how far it had read, and the logs go so far", unreadable},
}

// Judge returns the figures of the run, and every violation of every rule.
func Judge(h *History) (Figures, []Violation) {
	b := open(h)
	var all []Violation
	for _, r := range rules {
		for _, v := range r.judge(b) {
			v.Rule = r.Name
			all = append(all, v)
		}
	}
	return b.figures(), all
}

func violation(evidence []string, format string, args ...any) Violation {
	return Violation{Text: fmt.Sprintf(format, args...), Evidence: evidence}
}

// Figures are counts of a run.
type Figures struct {
	Changes  int `json:"changes"`  // revisions of the storage that the rules look at
	Turns    int `json:"turns"`    // stored
	Commands int `json:"commands"` // in them
	Writes   int `json:"writes"`   // carried out by the API server for Millrace, without Events
	Deltas   int `json:"deltas"`   // in the logs
	Gaps     int `json:"gaps"`     // marked in the logs
	// Hidden are the changes that the logs lack, all of them within gaps.
	Hidden int `json:"hidden"`
	// Unseen are the owners that were removed before a dependent, because the log did not have
	// the dependent when the removal was decided.
	Unseen int `json:"unseen"`
	// Repeated are the requests for commands that had been requested before.
	Repeated int `json:"repeated"`
	// Unanswered are the requests whose effect is not in the audit log, because their server
	// was killed, or timed out.
	Unanswered int `json:"unanswered"`
	// Unsure are the results that are marked as unsure, and Late those of them whose command
	// was carried out.
	Unsure int `json:"unsure"`
	Late   int `json:"late"`
	// Crowded are the unsure results of turns that, with many others, reached a writer late
	// without a fault, because the machine was too slow.
	Crowded int `json:"crowded"`
	// Unread are the turns that rest on messages that the logs do not have.
	Unread int `json:"unread"`
	// Stale are the ReplicaSets that a Deployment made smaller than it allows, because the
	// status of one of them counted more available pods than its replicas.
	Stale int `json:"stale"`
	// Busiest is the maximum of writes of one object in one minute.
	Busiest int `json:"busiest"`
}

// books is a history with its indexes.
type books struct {
	*History
	turns map[place]*Turn
	// origins maps the copies of turns that were stored again, because no writer had them in
	// flight, to the first ones. outcomes, stored and open have the first turn as key for the
	// effects of all copies.
	origins  map[place]place
	outcomes map[place][]*Outcome
	// stored are the writes that were carried out, by command. open are those whose effect
	// the audit log does not show: they were never answered, or answered with an error after
	// which they may have been carried out, such as a time-out.
	stored, open map[command][]*Write
	// by is Millrace's write that made a revision of an object.
	by map[edition]*Write
	// foreign are the revisions in the responses to deletes by other clients.
	foreign map[edition]bool
	// lives are the versions of each object, in order.
	lives map[types.UID][]*Change
	// hidden, busiest, late, unseen, unread, stale and crowded are counted by rules, for the figures.
	hidden, busiest, late, unseen, unread, stale, crowded int
	// owned are the objects that an owner has ever controlled, and labelled the pods by their
	// label app.
	owned    map[types.UID][]types.UID
	labelled map[label][]types.UID
	// times is when each change was recorded in a log, and ordered the faults by their begin.
	times   map[version]time.Time
	ordered []Fault
	// hiding is how much each gap hides, by its kind and its end.
	hiding map[string]hiding
}

// hiding is how many changes a gap hides, and how many it may.
type hiding struct{ changes, most int }

// command is one command of a turn.
type command struct {
	place
	at int
}

func (c command) String() string { return fmt.Sprintf("command %d of %v", c.at, c.place) }

// edition is one version of an object.
type edition struct {
	uid      types.UID
	revision int64
}

// label is the label app of pods in a namespace.
type label struct{ namespace, app string }

// eventsKind is the kind of Kubernetes' Events, which have no outcomes.
const eventsKind = kinds.Name("events")

func open(h *History) *books {
	b := &books{
		History: h.cut(), turns: map[place]*Turn{}, origins: map[place]place{}, outcomes: map[place][]*Outcome{},
		stored: map[command][]*Write{}, open: map[command][]*Write{},
		by: map[edition]*Write{}, foreign: map[edition]bool{}, lives: map[types.UID][]*Change{}, hiding: map[string]hiding{},
		owned: map[types.UID][]types.UID{}, labelled: map[label][]types.UID{}, times: map[version]time.Time{},
	}
	h = b.History
	for i := range h.Turns {
		t := &h.Turns[i]
		b.turns[t.place()] = t
		if t.Repeats != 0 {
			b.origins[t.place()] = b.origin(place{t.Controller, t.Repeats})
		}
	}
	for i := range h.Outcomes {
		o := &h.Outcomes[i]
		at := b.origin(o.place())
		b.outcomes[at] = append(b.outcomes[at], o)
	}
	for i := range h.Changes {
		c := &h.Changes[i]
		b.lives[c.Object.UID] = append(b.lives[c.Object.UID], c)
	}
	b.index()
	b.openAudit()
	return b
}

// openAudit indexes the writes by command.
func (b *books) openAudit() {
	ended := map[string]int{}
	for i := range b.Writes {
		w := &b.Writes[i]
		if w.Foreign && w.Stored() {
			b.foreign[edition{w.UID, w.Revision}] = true
		}
		if w.Foreign || w.Ref.Kind == eventsKind {
			continue
		}
		c, ok := b.commandOf(w.ID)
		if !ok {
			continue // the rule complete reports it
		}
		if w.Ended {
			ended[w.ID]++
		}
		if w.Ended && w.Code >= 500 {
			b.open[c] = append(b.open[c], w)
		}
		if w.Stored() {
			b.stored[c] = append(b.stored[c], w)
			at := edition{w.UID, w.Revision}
			if first := b.by[at]; w.UID != "" && w.Revision != 0 && (first == nil || w.At.Before(first.At)) {
				b.by[at] = w // later ones changed nothing, and got the existing object as the response
			}
		}
	}
	// The log has each request as received, and again as ended if its server was not killed before.
	for i := range b.Writes {
		w := &b.Writes[i]
		if w.Ended || w.Foreign || w.Ref.Kind == eventsKind {
			continue
		}
		if ended[w.ID]--; ended[w.ID] < 0 {
			if c, ok := b.commandOf(w.ID); ok {
				b.open[c] = append(b.open[c], w)
			}
		}
	}
}

func (b *books) figures() Figures {
	f := Figures{
		Changes: len(b.Changes), Turns: len(b.Turns), Hidden: b.hidden, Busiest: b.busiest, Late: b.late,
		Unseen: b.unseen, Unread: b.unread, Stale: b.stale, Crowded: b.crowded,
	}
	for _, o := range b.Outcomes {
		for _, r := range o.Results {
			if r.Unsure {
				f.Unsure++
			}
		}
	}
	for _, t := range b.Turns {
		f.Commands += len(t.Commands)
	}
	for _, writes := range b.stored {
		f.Writes += len(writes)
		f.Repeated += len(writes) - 1
	}
	for _, writes := range b.open {
		f.Unanswered += len(writes)
	}
	for _, log := range b.Logs {
		f.Deltas += len(log)
		for _, e := range log {
			if e.Op == events.Gap {
				f.Gaps++
			}
		}
	}
	return f
}

// sorted are the keys of a map of commands, in order.
func sorted[T any](m map[command]T) []command {
	var all []command
	for c := range m {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b command) int {
		return cmp.Or(cmp.Compare(a.controller, b.controller), cmp.Compare(a.sequence, b.sequence), cmp.Compare(a.at, b.at))
	})
	return all
}

// Converged judges only the state at the end.
func Converged(changes []Change) []Violation {
	return converged(open(&History{Changes: changes}))
}
