package report

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Conditions of a single key: time ends them, or they need not end. They do not count as a stall
// of the controller.
const (
	// NoLease: the controller moves with a Lease, and no writer holds it.
	NoLease Condition = "NoLease"
	// OtherReplica: another replica owns the key.
	OtherReplica Condition = "OtherReplica"
	// Parked: the key is set aside until something asks for it or it is unparked.
	Parked Condition = "Parked"
	// BackingOff: the key waits for a known moment, after a failure or until its next report is
	// due.
	BackingOff Condition = "BackingOff"
)

// keyReasons describes these conditions.
var keyReasons = map[Condition]string{
	NoLease:      "its controller moves with a Lease that no writer holds: kube-controller-manager runs it",
	OtherReplica: "another replica of the reconcilers decides about it",
	Parked:       "it is parked",
	BackingOff:   "it backs off, or its next report is not due yet",
}

// OfKey reports whether the condition is one of a single key.
func (c Condition) OfKey() bool { return keyReasons[c] != "" }

// KeyReport is the state of a controller's key in one process: the answer to GET
// /debug/keys/CONTROLLER/NAMESPACE/NAME. It leaves out a service that the process does not run.
type KeyReport struct {
	Controller  string      `json:"controller"`
	Key         events.Key  `json:"key"`
	Reconcilers *KeyState   `json:"reconcilers,omitempty"`
	Writer      []TurnState `json:"writer,omitempty"`
}

// KeyState is the state of a key in the reconcilers. Sequences are those of the controller's
// streams.
type KeyState struct {
	// Waits is why the key has no turn now, the first of Checks that holds; empty when nothing
	// asks for a turn. Reason describes it.
	Waits  Condition `json:"waits,omitempty"`
	Reason string    `json:"reason"`
	// Known is false when this process has never handled the key.
	Known  bool       `json:"known"`
	Checks []KeyCheck `json:"checks"`
	// Write and Status are the last turns of the two lanes.
	Write  LaneState `json:"write"`
	Status LaneState `json:"status"`
	// WakeAt is when the controller wants to be asked again.
	WakeAt *time.Time `json:"wakeAt,omitempty"`
	// Causes are the newest messages that ask for the key's next turn.
	Causes []events.Trigger `json:"causes,omitempty"`
}

// KeyCheck is one condition that would make a key wait, and whether it holds.
type KeyCheck struct {
	Condition Condition  `json:"condition"`
	Reason    string     `json:"reason"`
	Holds     bool       `json:"holds"`
	Since     *time.Time `json:"since,omitempty"`
	// Until is when the condition ends, if time ends it.
	Until *time.Time `json:"until,omitempty"`
	// About is the kind, error or key that the condition is about.
	About string `json:"about,omitempty"`
}

// LaneState is the last turn of a key in one lane.
type LaneState struct {
	// Turn is the turn's sequence, and Outcome the sequence of the newest turn whose outcome is
	// known; 0: none.
	Turn    uint64 `json:"turn,omitempty"`
	Outcome uint64 `json:"outcome,omitempty"`
	// Unseen are the objects that were written and have not come back from the watcher.
	Unseen []events.Ref `json:"unseen,omitempty"`
	// Failures is the number of turns that failed in a row.
	Failures int `json:"failures,omitempty"`
}

// TurnState is a turn that a writer has in flight.
type TurnState struct {
	// Lane is the name of the lane.
	Lane string `json:"lane"`
	// Turn is the turn's sequence in the controller's stream of turns, and Attempt the number of
	// its deliveries.
	Turn    uint64 `json:"turn"`
	Attempt int    `json:"attempt"`
	// Stored is when the bus stored the turn.
	Stored time.Time `json:"stored"`
	// Claim is Held, Uncertain, Free or Lost: whether another writer may have it.
	Claim string `json:"claim"`
}
