package events

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Op says what a delta reports.
type Op string

const (
	// Is reports the object as it is now.
	Is Op = "is"
	// Gone reports that the object exists no more; the body is its last state.
	Gone Op = "gone"
	// Mark reports that everything of this kind up to ResourceVersion has been
	// seen. It is about no object.
	Mark Op = "mark"
	// Gap reports that changes may be missing before this point: a resume
	// position was lost and a relist has been compared with the state. It is
	// about no object and stays in the record as a visible hole. Its body is a
	// [Hole].
	Gap Op = "gap"
)

// Hole is the body of a Gap.
type Hole struct {
	Reason string `json:"reason"`
	// From and To are the first and the last message of the log that were lost
	// or damaged; 0 where that is not known, or where it is changes that no
	// watcher has seen.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
	// Since is when the log was last known to have everything: what happened between
	// then and the gap may be missing. Zero where that is not known.
	Since time.Time `json:"since,omitzero"`
}

// Delta is one change of one object, or a mark in the log of its kind.
type Delta struct {
	Kind kinds.Name
	Ref  Ref // the zero Ref for Mark and Gap
	Op   Op

	UID             types.UID
	ResourceVersion string
	Generation      int64
	Deleting        bool // the object has a deletionTimestamp
	Epoch           uint64

	// Sync is true when the object is said again without a change: a keyframe,
	// or the finding of a relist.
	Sync bool
	// By is the manager of the managedFields entry that this change has changed, if Proven;
	// otherwise it is the manager of the newest entry, which need not have made the change.
	By     Manager
	Proven bool
	// Beside are the other managers whose entries are of the newest second, and those who
	// scale, whose entries have no time. Without Proven any of them may have made the change.
	Beside []Manager
	// At is when the watcher received the change.
	At time.Time

	Form        kinds.Form
	ContentType string
	Body        []byte

	// Trace is the W3C trace context of the change; empty when it is not traced.
	Trace Trace

	// Census counts the objects of the kind that are there behind this delta.
	Census Census
	// After is the last message before this one in its log that is not a mark:
	// marks expire, and all else stays as long as the log. A log in which a
	// message is not the one that the next one comes after has been damaged.
	After Link
	// Since, of a mark: everything that is there behind it has been said by this
	// message of the log or by a later one, so that who reads the state from here
	// on has all of it. 0: no watcher has looked.
	Since uint64
	// Before is where the log says the object the last time before this; of a mark or
	// a gap, where the last gap before it is. So the past of an object, and the gaps
	// of a log, are read from their ends, and not by going through the log.
	Before Place
	// Sight is for how long the kind has been watched without a break; zero where
	// no reader asks for it ([kinds.IsHeartbeat]).
	Sight Sight
	// Left is what was left out since the object was said before this: it was written
	// faster than is recorded.
	Left Left
	// Waits is how many objects have a newer version than the log, which waits to be
	// said: the log is no position to go on from.
	Waits uint64
	// Redaction, of a mark or a gap, is whether rules hide values of the kind.
	Redaction Redaction
}

// Redaction is whether rules hide values of a kind from the record. The zero value is that
// its watcher did not say.
type Redaction string

// What a watcher says of a kind.
const (
	// Redacted: there are rules.
	Redacted Redaction = "rules"
	// Unredacted: there are none.
	Unredacted Redaction = "none"
)

// Left is what was left out of the record.
type Left struct {
	// Versions of an object, and the Bytes of their bodies.
	Versions uint64 `json:"versions"`
	Bytes    uint64 `json:"bytes"`
}

// String is "<versions> <bytes>", or "" where nothing was left out.
func (l Left) String() string {
	if l == (Left{}) {
		return ""
	}
	return strconv.FormatUint(l.Versions, 10) + " " + strconv.FormatUint(l.Bytes, 10)
}

func parseLeft(text string) (l Left, err error) {
	if text == "" {
		return l, nil
	}
	versions, bytes, _ := strings.Cut(text, " ")
	if l.Versions, err = strconv.ParseUint(versions, 10, 64); err == nil {
		l.Bytes, err = strconv.ParseUint(bytes, 10, 64)
	}
	return l, err
}

// Place is the sequence of a message in its log, 0 where there is none. Known is
// false where the watcher did not know it, or was of a version that did not say.
type Place struct {
	Known    bool
	Sequence uint64
}

// FieldManager is the field manager under which writers of ours write.
// Upstream: kube-controller-manager writes under the same name.
const FieldManager = "kube-controller-manager"

// Manager is who last changed an object: its field manager and how it wrote.
type Manager struct {
	Name        string
	Operation   string // "Apply" or "Update"
	Subresource string
	Time        time.Time
}

// Trace is a W3C trace context, in its two header values, and how far the trace
// has come; package trace makes and reads it.
type Trace struct {
	Parent string `json:"traceparent,omitempty"`
	State  string `json:"tracestate,omitempty"`
	// Writes counts the writes of ours that led here, one after the other.
	Writes int `json:"hops,omitempty"`
	// Began is when the trace began, in milliseconds since 1970; 0: not known.
	Began int64 `json:"began,omitempty"`
}

// ID is the trace's id, as collectors know it; empty where there is none.
func (t Trace) ID() string {
	const version, length = len("00-"), 32
	if len(t.Parent) < version+length {
		return ""
	}
	return t.Parent[version : version+length]
}

// ID is the delta's identity for de-duplication: the same change published
// twice has the same ID.
func (d Delta) ID() string {
	if d.Op == Mark || d.Op == Gap {
		return string(d.Op) + "/" + string(d.Kind) + "/" + d.ResourceVersion
	}
	return string(d.Op) + "/" + string(d.UID) + "/" + d.ResourceVersion
}
