package report

import (
	"encoding/json"
	"slices"
)

// Writers is the topic of the writers' heartbeats ([Heartbeat]), and Reconcilers the topic of
// the reconcilers' heartbeats.
const (
	Writers     = "writers"
	Reconcilers = "reconcilers"
)

// Heartbeat is published by a writer several times a second, without being stored: it says that
// the writer is alive, and which turns it is carrying out. Other writers leave those turns
// alone, and an engine that waits for an outcome knows that a writer is at work on it.
type Heartbeat struct {
	Writer string `json:"writer"`
	// Number counts the heartbeats of the writer, from 1.
	Number uint64 `json:"number"`
	// Turns are the sequences of the turns in flight that the writer has claimed, by controller.
	Turns map[string][]uint64 `json:"turns,omitempty"`
	// Waiting are turns that were delivered to the writer but may be another writer's: it has
	// not checked yet. Only engines use them.
	Waiting map[string][]uint64 `json:"waiting,omitempty"`
	// Full are the controllers of which the writer has as many turns as it may have pending at a
	// time, so that no writer has received the turns stored after the newest of them.
	Full []string `json:"full,omitempty"`
	// Leads are the controllers that move with a Lease which the writer holds, with the
	// [events.Turn].Token of the turns that it carries out.
	Leads map[string]uint64 `json:"leads,omitempty"`
}

// InFlight are the turns of a controller in Turns and in Waiting.
func (b Heartbeat) InFlight(controller string) []uint64 {
	return append(slices.Clip(b.Turns[controller]), b.Waiting[controller]...)
}

// Encode gives the heartbeat as JSON.
func (b Heartbeat) Encode() []byte {
	text, _ := json.Marshal(b) // numbers and strings: cannot fail
	return text
}

const (
	// maxHeartbeat bounds a heartbeat, in bytes, with the turns in flight of all controllers.
	maxHeartbeat = 256 << 10
	// maxName bounds the name of a process in a message, in bytes.
	maxName = 256
)

// DecodeHeartbeat reads a heartbeat; ok is false for anything else.
func DecodeHeartbeat(text []byte) (b Heartbeat, ok bool) {
	if len(text) > maxHeartbeat || json.Unmarshal(text, &b) != nil {
		return Heartbeat{}, false
	}
	return b, b.Writer != "" && len(b.Writer) <= maxName
}
