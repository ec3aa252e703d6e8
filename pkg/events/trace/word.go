package trace

import (
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// Writes is the topic on which writers announce their writes.
const Writes = "writes"

// RollEvery is how often a writer calls its [Roll].
const RollEvery = 500 * time.Millisecond

// HeardBy is the topic on which watchers confirm a write to its writer: they send the ID of a
// write that begins, once they have received it.
func HeardBy(writer string) string { return "heard." + writer }

// Write is a writer's announcement to the watchers of a request that writes; it is not stored.
// The writer publishes it before it sends the request, and again, with the resulting version, as
// soon as it has the response or knows that there will be none. A watcher that misses it takes
// the version for another client's and begins a new trace.
type Write struct {
	// Writer is the writer, ID identifies the request among all of that writer, and About is the
	// object that it names. Begins is true before the request is sent; then the fields below are
	// empty, and a watcher of the kind answers on [HeardBy].
	Writer string     `json:"writer,omitempty"`
	ID     string     `json:"id,omitempty"`
	About  events.Ref `json:"about,omitzero"`
	Begins bool       `json:"begins,omitempty"`
	// UID and Version are the result; empty if there is none, or if it is unknown.
	UID     types.UID `json:"uid,omitempty"`
	Version string    `json:"rv,omitempty"`
	// Ends is true for a request that leads to the object's end, at once or later.
	Ends bool `json:"ends,omitempty"`
	// Trace is the request's trace; empty if it is not sampled.
	Trace events.Trace `json:"trace,omitzero"`
}

// Encode gives the write as JSON.
func (w Write) Encode() []byte {
	text, _ := json.Marshal(w) // numbers and strings: cannot fail
	return text
}

const (
	// maxWrite limits a [Write], which names one object, and maxRoll a [Roll], in bytes.
	maxWrite, maxRoll = 16 << 10, 256 << 10
	// maxWriter limits the name of a writer, in bytes.
	maxWriter = 256
)

// DecodeWrite parses a write; ok is false for anything else. A writer of an earlier version
// sends no ID, and announces only responses.
func DecodeWrite(text []byte) (w Write, ok bool) {
	if len(text) > maxWrite || json.Unmarshal(text, &w) != nil {
		return Write{}, false
	}
	return w, (w.UID != "" || w.ID != "") && proper(w.Writer)
}

// proper reports whether a text can be the name of a writer, which is a part of a subject; it is
// empty for a writer of an earlier version.
func proper(writer string) bool {
	return len(writer) <= maxWriter && !strings.ContainsFunc(writer, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Roll is published by a writer on the same topic twice a second: it says that the writer is
// alive, and which of its writes are in flight. A write that was announced and is not in the
// roll has ended, although the message about that was lost. Rolls and writes arrive in order.
type Roll struct {
	Writer string   `json:"writer"`
	Open   []string `json:"open"` // IDs, in order
}

// Encode gives the roll as JSON.
func (r Roll) Encode() []byte {
	text, _ := json.Marshal(r) // strings: cannot fail
	return text
}

// DecodeRoll parses a roll; ok is false for anything else.
func DecodeRoll(text []byte) (r Roll, ok bool) {
	if len(text) > maxRoll || json.Unmarshal(text, &r) != nil {
		return Roll{}, false
	}
	return r, r.Writer != "" && r.Open != nil && proper(r.Writer)
}
