package trace

import (
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// Writes is the topic on which writers tell of their writes.
const Writes = "writes"

// RollEvery is how often a writer calls its [Roll].
const RollEvery = 500 * time.Millisecond

// HeardBy is the topic on which watchers answer a writer: the ID of a write that
// begins, once they have heard of it.
func HeardBy(writer string) string { return "heard." + writer }

// Write is what a writer tells the watchers of a request that writes, without its
// being stored: before it sends it, that it will, and as soon as it has the answer, or
// will have none, which version came of it. A watcher that misses it takes the version
// for another client's and begins a new trace.
type Write struct {
	// Writer is who writes, ID tells the request apart from all others of that, and
	// About is the object that it names. Begins is true before it is sent; then nothing
	// below is known, and a watcher that watches the kind answers on [HeardBy].
	Writer string     `json:"writer,omitempty"`
	ID     string     `json:"id,omitempty"`
	About  events.Ref `json:"about,omitzero"`
	Begins bool       `json:"begins,omitempty"`
	// UID and Version are what came of it; empty where nothing did, or that is unknown.
	UID     types.UID `json:"uid,omitempty"`
	Version string    `json:"rv,omitempty"`
	// Ends is true for what brings an object to its end, whenever that is.
	Ends bool `json:"ends,omitempty"`
	// Trace is the request's; empty when that is not sampled.
	Trace events.Trace `json:"trace,omitzero"`
}

// Encode gives the write as it goes on its topic.
func (w Write) Encode() []byte {
	text, _ := json.Marshal(w) // numbers and strings: cannot fail
	return text
}

const (
	// maxWrite bounds a [Write], which names one object, and maxRoll a [Roll], in bytes.
	maxWrite, maxRoll = 16 << 10, 256 << 10
	// maxWriter bounds the name that a writer gives itself, in bytes.
	maxWriter = 256
)

// DecodeWrite reads a write; ok is false for anything else. A writer of an earlier
// version gives no ID, and tells only of answers.
func DecodeWrite(text []byte) (w Write, ok bool) {
	if len(text) > maxWrite || json.Unmarshal(text, &w) != nil {
		return Write{}, false
	}
	return w, (w.UID != "" || w.ID != "") && proper(w.Writer)
}

// proper tells whether a text can be the name of a writer, which is a part of a subject;
// empty is that of an earlier version.
func proper(writer string) bool {
	return len(writer) <= maxWriter && !strings.ContainsFunc(writer, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Roll is what a writer says on the same topic twice a second: that it is there, and
// which of its writes are under way. What it told of and does not name has ended,
// although the word of that was lost. It is in order with the words of each write.
type Roll struct {
	Writer string   `json:"writer"`
	Open   []string `json:"open"` // IDs, in order
}

// Encode gives the roll as it goes on its topic.
func (r Roll) Encode() []byte {
	text, _ := json.Marshal(r) // strings: cannot fail
	return text
}

// DecodeRoll reads a roll; ok is false for anything else.
func DecodeRoll(text []byte) (r Roll, ok bool) {
	if len(text) > maxRoll || json.Unmarshal(text, &r) != nil {
		return Roll{}, false
	}
	return r, r.Writer != "" && r.Open != nil && proper(r.Writer)
}
