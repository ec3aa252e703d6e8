package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/claim"
)

// Round is one round of an autoscaler.
type Round struct {
	Of    Asker
	Asked time.Time
}

// Move is the difference by which an autoscaler has changed a scale.
type Move struct {
	At time.Time
	By int32
	// Found: a user wrote the scale, and a turn found it as it should be.
	Found bool
}

// Advice is the number of replicas that the readings of a round ask for.
type Advice struct {
	Asked time.Time
	Wants int32
}

// CronRun is one scheduled time of a CronJob.
type CronRun struct {
	Of     types.UID
	Moment int64 // in minutes
}

// SinceLook reports whether an object was created after the writer of a turn checked for
// obstacles.
func (g *Guard) SinceLook(c *Taken, obj metav1.Object) bool {
	looked, ever := g.Turns.Looked[c.At()]
	return ever && g.Record.MadeAt[obj.GetUID()] > looked
}

// Guard is the record that rules read whenever something happens that could break them. It
// keeps counts, so that a check costs the same in a large world. Each of its parts is of one
// group of rules.
type Guard struct {
	World *Cluster

	Turns  turns
	Record record

	Pods        pods
	Jobs        jobs
	Autoscalers autoscalers
	Metadata    metadata
	Storage     storage
	Network     network
	Devices     devices
}

// turns is what turns decided, and what writers did about them.
type turns struct {
	Doing       *Taken                 // the turn whose request is being carried out
	Wrong       bool                   // the current delete would hit another uid than was decided on
	Decided     int                    // decisions
	Seen        map[TurnOf]*Look       // the view of each write turn
	Act         map[ActLane]uint64     // the last write turn of each key
	Ahead       map[ActLane]time.Time  // when each was last decided by a clock that is ahead
	Generations map[Asker]int64        // the newest generation that a controller acted on
	Writes      map[events.Ref]int     // since something other than a controller acted
	Batches     map[claim.Place]*Batch // the results of a turn's creates
	Looked      map[claim.Place]int64  // when the writer of a turn last checked for obstacles
}

// record is what the API server stored, and what the logs told of it.
type record struct {
	Logs   map[kinds.Name]*Heard
	Epochs map[uint64]time.Time // when each was first recorded
	// Restoring: the current changes are those of a restore. Restored: there has been one.
	Restoring, Restored bool
	Changes             int                 // of objects
	MadeAt              map[types.UID]int64 // the version of the storage at which each object was created
}

// pods is what became of pods, and which of them there are.
type pods struct {
	Live    map[types.UID]map[types.UID]bool // the live pods of each owner
	Sets    map[types.UID]map[types.UID]int  // of a Deployment: what each of its ReplicaSets asks for
	Brought map[types.UID]bool               // pods that their owner has not created, or has lost once
	Ended   map[types.UID]string             // by which controller a pod was deleted; "": none
	Created []time.Time                      // when pods were created, for the rate
}

// jobs is what became of Jobs and CronJobs.
type jobs struct {
	Work   map[types.UID]*Ledger   // of a Job: what became of its pods
	Stayed map[events.Ref]bool     // Jobs whose delete failed, as far as a writer was told
	Begun  map[CronRun]bool        // the times of CronJobs that have had their run
	Names  map[string]bool         // of Jobs that were refused because another one had the name
	Other  map[types.UID]time.Time // when a CronJob was given another schedule
}

// autoscalers is what autoscalers judged and wrote.
type autoscalers struct {
	Rounds  map[Round]int32 // which number of replicas was judged
	Written map[Round]bool
	Moves   map[Asker][]Move   // what an autoscaler wrote
	Advised map[Asker][]Advice // what its readings asked for
}

// metadata is what API servers and migrations of the storage did.
type metadata struct {
	Missed   map[string]int64  // API servers: the version of the storage at which they were seen without a lease
	Encoding map[types.UID]int // of a migration: the encoding of objects when it began
}

// storage is what pods were told about their volumes.
type storage struct {
	Warned map[Warning]Warned // when each warning was given last
}

// network is which nodes have ranges of addresses.
type network struct {
	RangedAt map[types.UID]int64  // the version of the storage at which each node got its ranges
	RangedBy map[types.UID]string // by which controller; empty: by another program
}

// devices is which pods had to leave their devices.
type devices struct {
	Driven  map[types.UID]time.Time // when pods last had to
	Cracked map[string]time.Time    // when devices last evicted pods, if there were any
}

// Asker is a controller that acts on an object. Two controllers of one object have no order:
// the writer repeats a create whose result is unknown, and the garbage collector does not wait
// for that.
type Asker struct {
	Controller string
	Object     types.UID
}

// TurnOf identifies a turn.
type TurnOf struct {
	Controller string
	Sequence   uint64
}

// ActLane is the lane of the writes of a key.
type ActLane struct {
	Controller string
	Key        events.Key
}

// Heard is what the guard knows about a kind's log.
type Heard struct {
	Epoch   uint64
	Version string
	Told    map[events.Ref][]Telling // of the epoch, in order
	Lost    map[events.Ref][]Telling // what the log had told, and lost
	losses  []loss
	// Vague: the log has lost deltas, and the watcher has not yet said all of them again.
	Vague bool
}

// Telling is a place in a log that reports an object: its version or, if a relist found it
// missing, the version of the storage.
type Telling struct {
	Sequence uint64
	Version  string
}

// Tells is the first place in a log whose readers know a version of an object; ok is false when
// no place does yet.
func (h *Heard) Tells(ref events.Ref, version string) (sequence uint64, ok bool) {
	return First(h.Told[ref], version)
}

// First is the first place that reports a version of an object, or a later one.
func First(told []Telling, version string) (sequence uint64, ok bool) {
	for _, t := range told {
		if kinds.CompareVersions(t.Version, version) >= 0 {
			return t.Sequence, true
		}
	}
	return 0, false
}

// NewGuard returns an empty record about a cluster that serves the kinds.
func NewGuard(w *Cluster, served []kinds.Kind) *Guard {
	g := &Guard{
		World: w,
		Turns: turns{
			Seen: map[TurnOf]*Look{}, Act: map[ActLane]uint64{}, Ahead: map[ActLane]time.Time{}, Generations: map[Asker]int64{},
			Writes: map[events.Ref]int{}, Batches: map[claim.Place]*Batch{}, Looked: map[claim.Place]int64{},
		},
		Record: record{Logs: map[kinds.Name]*Heard{}, Epochs: map[uint64]time.Time{}, MadeAt: map[types.UID]int64{}},
		Pods: pods{
			Live: map[types.UID]map[types.UID]bool{}, Sets: map[types.UID]map[types.UID]int{},
			Brought: map[types.UID]bool{}, Ended: map[types.UID]string{},
		},
		Jobs: jobs{
			Work: map[types.UID]*Ledger{}, Stayed: map[events.Ref]bool{},
			Begun: map[CronRun]bool{}, Names: map[string]bool{}, Other: map[types.UID]time.Time{},
		},
		Autoscalers: autoscalers{
			Rounds: map[Round]int32{}, Written: map[Round]bool{}, Moves: map[Asker][]Move{}, Advised: map[Asker][]Advice{},
		},
		Metadata: metadata{Missed: map[string]int64{}, Encoding: map[types.UID]int{}},
		Storage:  storage{Warned: map[Warning]Warned{}},
		Network:  network{RangedAt: map[types.UID]int64{}, RangedBy: map[types.UID]string{}},
		Devices:  devices{Driven: map[types.UID]time.Time{}, Cracked: map[string]time.Time{}},
	}
	for _, k := range served {
		g.Record.Logs[k.Name] = &Heard{Told: map[events.Ref][]Telling{}, Lost: map[events.Ref][]Telling{}}
	}
	return g
}

// Breaks reports that a rule is broken. The first report ends the world.
func (g *Guard) Breaks(rule string, format string, args ...any) {
	if g.World.Broken == nil && !slices.Contains(strings.Fields(g.World.Settings.Ignore), rule) {
		g.World.Broken = fmt.Errorf("%s (%s) broken: %s", rule, rules[rule], fmt.Sprintf(format, args...))
	}
}

var rules = map[string]string{
	"I1": "convergence", "I2": "no over-creation", "I3": "order of a StatefulSet", "I6": "one effect", "I4": "nothing is deleted that was not to be", "I5": "as many stay available as must", "I8": "turns of a key never overlap or go back", "I9": "watch contract",
	"A1": "bounds of an autoscaler", "A2": "policies of an autoscaler", "A3": "an answer is judged once", "A6": "an autoscaler does not fall at once", "A4": "no API server is gone that was not asked for", "A5": "no token goes that is in use",
	"I7": "no lost trigger", "I11": "bounded writes", "I16": "what fails costs little", "C1": "a run for each moment", "S1": "slices say who answers",
	"I12": "finalizers go by the rules", "I10": "no decision on a view older than the key's own writes", "I13": "same inputs, same bytes",
	"O1": "why comes before what is done", "O2": "a success stays one", "O3": "what was created is told", "F24": "no node is silent that was heard",
	"V1": "one claim, one volume", "V2": "no data go that are claimed", "V3": "nothing is detached that is in use", "V4": "attached where it may be", "V5": "nothing is detached that its node lists",
	"N1": "no address is of two nodes", "C2": "signed once, what was approved", "D1": "devices are of those who claim them", "D2": "nothing is driven from a device without a reason",
	"L1": "no more writes than a limit allows", "A7": "no token goes before its time", "M1": "a migration that has succeeded leaves nothing out",
	"P1": "a request about pools is answered once", "P2": "the answer is what is so", "P3": "no request about pools goes before its time",
	"W1": "pods are warned of conflicts that there are", "W2": "no pod is warned again of the same",
}

// SetOf is the controller of a live pod.
func SetOf(obj metav1.Object) types.UID {
	pod, ok := obj.(*corev1.Pod)
	if !ok || !Active(pod) {
		return ""
	}
	return ControllerOf(pod)
}

// ControllerOf is the uid of the controller of an object; empty if it has none.
func ControllerOf(obj metav1.Object) types.UID {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return owner.UID
	}
	return ""
}

// Passed reports whether a clock that is ahead, for which more time has passed, decided about a
// key within the given time.
func (g *Guard) Passed(t events.Turn, within time.Duration) bool {
	at, ever := g.Turns.Ahead[ActLane{t.Controller, t.Key}]
	return ever && g.World.Now.Sub(at) <= within
}

// Lost forgets what the log of a kind, or its whole content, may say again: everything after
// the last place that readers still find.
func (g *Guard) Lost(kind kinds.Name, last uint64) {
	log := g.Record.Logs[kind]
	log.losses = append(log.losses, loss{g.World.Now, last})
	for ref, told := range log.Told {
		log.Told[ref] = slices.DeleteFunc(told, func(t Telling) bool {
			if t.Sequence > last {
				log.Lost[ref] = append(log.Lost[ref], t)
			}
			return t.Sequence > last
		})
	}
	log.Version, log.Vague = "", true
}

// loss is a loss of all messages of a log after the last one that is left.
type loss struct {
	at   time.Time
	last uint64
}

// LostSince reports whether a log has lost something that a turn has seen.
func (g *Guard) LostSince(t events.Turn, kind kinds.Name) bool {
	return slices.ContainsFunc(g.Record.Logs[kind].losses, func(l loss) bool { return !l.at.Before(t.Now) && l.last < t.Seen[kind] })
}

// Ledger is the real results of the pods of a Job.
type Ledger struct {
	Succeeded, Failed map[types.UID]bool
	Led               bool // the pod with the first index has succeeded
}

// Warning identifies what a pod is told about another one.
type Warning struct {
	Pod           types.UID
	Reason, Other string
}

// Warned is when a warning was given: after how many changes of objects, and the view of the
// turn that gave it.
type Warned struct {
	Changes int
	Seen    events.Position
}

// Batch is the results of a turn's creates, by command. Several writers may request each create
// several times.
type Batch struct {
	Made    map[int]bool // or existed before: then the create is refused, and the writer finds the object
	Refused map[int]bool
}

// Stirred records that something other than a controller acted.
func (g *Guard) Stirred() { clear(g.Turns.Writes) }
