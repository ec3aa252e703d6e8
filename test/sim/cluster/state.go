package cluster

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/claim"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/streams"
)

// Settings are the options of a world that users, nodes and rules depend on.
type Settings struct {
	// Faults is how many faults the world has in all.
	Faults int
	// Quiet is for how long no client may write for a world that never sleeps to be at rest.
	Quiet time.Duration
	// Skew bounds the difference between the clocks of processes and that of the world.
	Skew time.Duration
	// Nodes is what nodes do with pods.
	Nodes Nodes
	// Ignore lists the invariants that are not checked.
	Ignore string
	// Mute disables the transcript.
	Mute bool
	// Scripted: a script is played, in which nothing is left to chance. Blown: it has a fault.
	Scripted, Blown bool
}

// Taken is a turn that a writer carries out.
type Taken struct {
	Turn     events.Turn
	Sequence uint64
}

// Cluster is what users, nodes and rules know of a world.
type Cluster struct {
	Settings Settings
	// Advance lets time pass.
	Advance func(to time.Time)
	// ClocksDiffer reports whether the clocks of reconcilers are far apart.
	ClocksDiffer func() bool
	Random       *rand.Rand
	Now          time.Time
	Promises     map[string]func(events.Command) bool // the commands that each controller may give
	API          *apiserver.API
	Bus          *streams.Bus

	Guard      *Guard
	Transcript []string
	Broken     error
	Counts     Tally

	Changes int       // operations of users that are left
	Faults  int       // faults that are left
	Lull    time.Time // until when users pause
	Work    []func()  // what nodes and drivers can do now
	Dirty   bool      // the nodes' work has to be collected

	Rest    rest
	Nodes   nodes
	Metrics metrics
	Access  access
	Store   *Drivers // nil without storage
	// Prepared holds the pods that have begun to use a device, each with the claim that gives
	// it the device.
	Prepared map[string]map[types.UID]types.UID
}

// rest is what is known of a world that comes to rest.
type rest struct {
	Stuck   bool // a watch cache stood still until nothing else was left to do
	Began   bool // a replica began in the middle, and read each kind up to another moment
	Late    bool // only time will correct what was excepted for that, or for a clock
	Wrote   int  // the number of writes when a client last wrote
	Stirred time.Time
}

// nodes is what nodes, and the API server itself, tell of themselves.
type nodes struct {
	Kubelets map[string]*Kubelet
	Renewals int                  // writes of leases, which never end
	Renewed  time.Time            // when the API server last renewed its own lease
	Drove    map[string]time.Time // when a node of each zone last began to evict its pods
}

// metrics is what autoscalers read, and what their scales meet.
type metrics struct {
	Loads   map[string]int64 // the load of the pods of a Deployment, in thousandths
	Blind   time.Time        // until when the metrics are unknown
	Crosses int              // how often another client writes between a read and a write
}

// access is what joining nodes may have.
type access struct {
	Joins  bool      // they may have certificates
	Joined time.Time // until when they might, before that was revoked
}

// Roll is a random number below n; 0 in a scripted world.
func (w *Cluster) Roll(n int) int {
	if w.Settings.Scripted {
		return 0
	}
	return w.Random.IntN(n)
}

// Note adds a line to the transcript.
func (w *Cluster) Note(format string, args ...any) {
	if !w.Settings.Mute {
		w.Transcript = append(w.Transcript, w.Now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// At is the place of the turn.
func (c *Taken) At() claim.Place {
	return claim.Place{Controller: c.Turn.Controller, Sequence: c.Sequence}
}

// Kubelet is the kubelet of one node.
type Kubelet struct {
	Zone             string
	Stopped, Unready bool
	Renewed, Before  time.Time // when it was last heard, and the time before that
	// Driving is since when its pods are evicted (zero: they are not); Driven is until when they
	// were, the last time that this took as long as they tolerate it.
	Driving, Driven time.Time
}

// Nodes is what nodes do with the pods that they are given.
type Nodes int

// What nodes do.
const (
	// Run runs them until they are deleted.
	Run Nodes = iota
	// Reject rejects each at once, like a node that does not admit it.
	Reject
)

// Drivers are the provisioner, the attacher and the resizer of storage drivers, the kubelets
// and the scheduler, with the state that no object has: which volumes are mounted where.
type Drivers struct {
	World   *Cluster
	Mounted map[string]map[corev1.UniqueVolumeName]bool // by node
	Silent  map[string]bool                             // kubelets that are stopped
	Busy    map[string]time.Time                        // until when a kubelet unmounts nothing

	// Unwanted is since when no pod wants an attachment, Torn the attachments that were deleted
	// under a mount by a rule that allows it, and Uncertain those that the driver once failed
	// to make.
	Unwanted  map[types.UID]time.Time
	Torn      map[types.UID]bool
	Uncertain map[types.UID]bool
}

// NewDrivers returns drivers that have mounted nothing.
func NewDrivers(w *Cluster) *Drivers {
	return &Drivers{
		World: w, Mounted: map[string]map[corev1.UniqueVolumeName]bool{}, Silent: map[string]bool{}, Busy: map[string]time.Time{},
		Unwanted: map[types.UID]time.Time{}, Torn: map[types.UID]bool{}, Uncertain: map[types.UID]bool{},
	}
}
