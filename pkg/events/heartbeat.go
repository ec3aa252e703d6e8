package events

import (
	"encoding/json"
	"slices"
)

// Writers is the topic on which writers say that they are there and which turns they have in
// flight, and Reconcilers that on which reconcilers say that they are there.
const (
	Writers     = "writers"
	Reconcilers = "reconcilers"
)

// Heartbeat is what a writer says several times a second, without its being stored:
// that it is there, and which turns it is carrying out. Other writers let those
// be, and an engine that waits for an outcome knows that a writer is at it.
type Heartbeat struct {
	Writer string `json:"writer"`
	// Number counts the heartbeats of the writer, from 1.
	Number uint64 `json:"number"`
	// Turns are the sequences of the turns in flight that are its own, by controller.
	Turns map[string][]uint64 `json:"turns,omitempty"`
	// Waiting are those that it has been given and that may be another writer's: it has
	// not looked as yet. Only engines go by them.
	Waiting map[string][]uint64 `json:"waiting,omitempty"`
	// Full are the controllers of which it has as many turns as it is given at a time, so
	// that what is stored behind the newest of them has come to no writer.
	Full []string `json:"full,omitempty"`
}

// InFlight are the turns of a controller that the writer has, its own or not.
func (b Heartbeat) InFlight(controller string) []uint64 {
	return append(slices.Clip(b.Turns[controller]), b.Waiting[controller]...)
}

// Encode gives the heartbeat as it goes on its topic.
func (b Heartbeat) Encode() []byte {
	text, _ := json.Marshal(b) // numbers and strings: cannot fail
	return text
}

const (
	// maxHeartbeat bounds a heartbeat, in bytes: what a writer has in flight, of all controllers.
	maxHeartbeat = 256 << 10
	// maxName bounds the name that a process gives itself on a topic, in bytes.
	maxName = 256
)

// DecodeHeartbeat reads a heartbeat; ok is false for anything else.
func DecodeHeartbeat(text []byte) (b Heartbeat, ok bool) {
	if len(text) > maxHeartbeat || json.Unmarshal(text, &b) != nil {
		return Heartbeat{}, false
	}
	return b, b.Writer != "" && len(b.Writer) <= maxName
}
