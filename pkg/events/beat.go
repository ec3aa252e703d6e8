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

// Beat is what a writer says several times a second, without its being stored:
// that it is there, and which turns it is carrying out. Other writers let those
// be, and a desk that waits for an outcome knows that somebody is at it.
type Beat struct {
	Writer string `json:"writer"`
	// Number counts the beats of the writer, from 1.
	Number uint64 `json:"number"`
	// Turns are the sequences of the turns in hand that are its own, by controller.
	Turns map[string][]uint64 `json:"turns,omitempty"`
	// Waiting are those that it has been given and that may be another writer's: it has
	// not looked as yet. Only desks go by them.
	Waiting map[string][]uint64 `json:"waiting,omitempty"`
	// Full are the controllers of which it has as many turns as it is given at a time, so
	// that what is stored behind the newest of them has come to nobody.
	Full []string `json:"full,omitempty"`
}

// InHand are the turns of a controller that the writer has, its own or not.
func (b Beat) InHand(controller string) []uint64 {
	return append(slices.Clip(b.Turns[controller]), b.Waiting[controller]...)
}

// Encode gives the beat as it goes on its topic.
func (b Beat) Encode() []byte {
	text, _ := json.Marshal(b) // numbers and strings: cannot fail
	return text
}

const (
	// maxBeat bounds a beat, in bytes: what a writer has in hand, of all controllers.
	maxBeat = 256 << 10
	// maxName bounds the name that a process gives itself on a topic, in bytes.
	maxName = 256
)

// DecodeBeat reads a beat; ok is false for anything else.
func DecodeBeat(text []byte) (b Beat, ok bool) {
	if len(text) > maxBeat || json.Unmarshal(text, &b) != nil {
		return Beat{}, false
	}
	return b, b.Writer != "" && len(b.Writer) <= maxName
}
