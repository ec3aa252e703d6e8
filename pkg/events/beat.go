package events

import "encoding/json"

// Writers is the topic on which writers tell what they have in hand.
const Writers = "writers"

// Beat is what a writer says several times a second, without its being stored:
// that it is there, and which turns it is carrying out. Other writers let those
// be, and a desk that waits for an outcome knows that somebody is at it.
type Beat struct {
	Writer string `json:"writer"`
	// Number counts the beats of the writer, from 1.
	Number uint64 `json:"number"`
	// Turns are the sequences of the turns in hand, by controller.
	Turns map[string][]uint64 `json:"turns,omitempty"`
}

// Encode gives the beat as it goes on its topic.
func (b Beat) Encode() []byte {
	text, _ := json.Marshal(b) // numbers and strings: cannot fail
	return text
}

// DecodeBeat reads a beat; ok is false for anything else.
func DecodeBeat(text []byte) (b Beat, ok bool) {
	return b, json.Unmarshal(text, &b) == nil && b.Writer != ""
}
