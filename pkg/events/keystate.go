package events

import "time"

// Conditions of a key alone: time ends them, or nothing has to. No controller stalls by them.
const (
	// OtherReplica: the key is another replica's.
	OtherReplica Condition = "OtherReplica"
	// Parked: the key is set aside, until something asks for it or it is unparked.
	Parked Condition = "Parked"
	// BackingOff: it waits for a known moment, after a failure or until its next report is due.
	BackingOff Condition = "BackingOff"
)

// keyReasons are those conditions in words.
var keyReasons = map[Condition]string{
	OtherReplica: "another replica of the reconcilers decides about it",
	Parked:       "it is parked",
	BackingOff:   "it backs off, or its next report is not due yet",
}

// OfKey tells whether a condition is one of a key alone.
func (c Condition) OfKey() bool { return keyReasons[c] != "" }

// KeyReport is how a key of a controller stands in a process: what GET
// /debug/keys/CONTROLLER/NAMESPACE/NAME answers. A service that the process does not run is not
// in it.
type KeyReport struct {
	Controller  string      `json:"controller"`
	Key         Key         `json:"key"`
	Reconcilers *KeyState   `json:"reconcilers,omitempty"`
	Writer      []TurnState `json:"writer,omitempty"`
}

// KeyState is how a key stands with the reconcilers. Sequences are those of the controller's
// streams.
type KeyState struct {
	// Waits is why the key has no turn now, the first of Checks that holds; empty: nothing asks
	// for one. Reason is that in words.
	Waits  Condition `json:"waits,omitempty"`
	Reason string    `json:"reason"`
	// Known is false where this process has never had to do with the key.
	Known  bool       `json:"known"`
	Checks []KeyCheck `json:"checks"`
	// Act and Tell are the last turn of either lane.
	Act  LaneState `json:"act"`
	Tell LaneState `json:"tell"`
	// WakeAt is when the controller wants to look at it again.
	WakeAt *time.Time `json:"wakeAt,omitempty"`
	// Causes are the newest messages that ask for its next turn.
	Causes []Trigger `json:"causes,omitempty"`
}

// KeyCheck is one condition under which a key would wait, and whether it does.
type KeyCheck struct {
	Condition Condition  `json:"condition"`
	Reason    string     `json:"reason"`
	Holds     bool       `json:"holds"`
	Since     *time.Time `json:"since,omitempty"`
	// Until is the moment that ends it, if time does.
	Until *time.Time `json:"until,omitempty"`
	// About is the kind, error or key that it is about.
	About string `json:"about,omitempty"`
}

// LaneState is the last turn of a key in one lane.
type LaneState struct {
	// Turn is its sequence, and Outcome that of the newest turn whose outcome is known; 0: none.
	Turn    uint64 `json:"turn,omitempty"`
	Outcome uint64 `json:"outcome,omitempty"`
	// Unseen is what was written and has not come back.
	Unseen []Ref `json:"unseen,omitempty"`
	// Failures is how many turns in a row failed.
	Failures int `json:"failures,omitempty"`
}

// TurnState is a turn that a writer has in flight.
type TurnState struct {
	Lane Lane `json:"lane"`
	// Turn is its sequence in the controller's stream of turns, and Attempt how often it has
	// been delivered.
	Turn    uint64 `json:"turn"`
	Attempt int    `json:"attempt"`
	// Stored is when the bus had it.
	Stored time.Time `json:"stored"`
	// Claim is Held, Uncertain, Free or Lost: whether another writer may have it.
	Claim string `json:"claim"`
}
