package events

import (
	"fmt"
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
	// Gone reports that the object no longer exists; the body is its last state.
	Gone Op = "gone"
	// Mark reports that the watcher has seen everything of this kind up to ResourceVersion. It
	// is about no object.
	Mark Op = "mark"
	// Gap reports that changes may be missing before this point: the watcher lost its resume
	// position, and has compared a relist with the log. It is about no object, and stays in
	// the record as a visible hole. Its body is a [Hole].
	Gap Op = "gap"
)

// Hole is the body of a Gap.
type Hole struct {
	Reason string `json:"reason"`
	// From and To are the first and the last message of the log that were lost or damaged; 0
	// when not known, or when the hole is changes that no watcher has seen.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
	// Since is when the log was last known to be complete: changes between then and the gap may
	// be missing. Zero when not known.
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

	// Sync is true when the watcher repeats the object without a change: a keyframe, or the
	// result of a relist.
	Sync bool
	// By is the manager of the managedFields entry that this change modified, if Proven is true;
	// otherwise it is the manager of the newest entry, which need not have made the change.
	By     Manager
	Proven bool
	// Beside are the other managers whose entries have the same second as the newest one, and
	// those of the scale subresource, whose entries have no time. Without Proven any of them may
	// have made the change.
	Beside []Manager
	// At is when the watcher received the change.
	At time.Time

	Form        kinds.Form
	ContentType string
	Body        []byte

	// Trace is the W3C trace context of the change; empty when it is not traced.
	Trace Trace

	// Census counts the objects of the kind that exist after this delta.
	Census Census
	// After is the last message before this one in its log that is not a mark. Marks expire; all
	// other messages stay as long as the log. If the last such message before a delta is not its
	// After, the log is damaged.
	After Link
	// Since, of a mark: every object that exists has a message in the log at this sequence or
	// later, so that a reader of the log that starts there sees all objects. 0: no watcher has
	// checked.
	Since uint64
	// Before is the sequence of the object's previous message in the log; for a mark or a gap,
	// the sequence of the previous gap. So a reader follows the past of an object, and the gaps
	// of a log, backwards from the end without scanning the log.
	Before Place
	// Sight is the interval in which the kind has been watched without a break; zero for kinds
	// that no reader asks it of ([kinds.IsHeartbeat]).
	Sight Sight
	// Left counts the versions omitted since the object's previous message, because the object
	// was written faster than the watcher records it.
	Left Left
	// Waits is how many objects have a newer version that the log does not contain yet. While it
	// is not 0, a watch cannot resume from the log's position.
	Waits uint64
	// Redaction, of a mark or a gap, says whether rules hide values of the kind.
	Redaction Redaction
}

// Redaction says whether rules hide values of a kind from the record. The zero value: the
// watcher did not say.
type Redaction string

// The values of Redaction.
const (
	// Redacted: there are rules.
	Redacted Redaction = "rules"
	// Unredacted: there are none.
	Unredacted Redaction = "none"
)

// Left counts what was omitted from the record.
type Left struct {
	// Versions is the number of omitted versions of an object, and Bytes the size of their
	// bodies.
	Versions uint64 `json:"versions"`
	Bytes    uint64 `json:"bytes"`
}

// String is "<versions> <bytes>", or "" when nothing was omitted.
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

// Place is the sequence of a message in its log; 0 when there is none. Known is false when the
// watcher did not know it, or was of a version that did not record it.
type Place struct {
	Known    bool
	Sequence uint64
}

// FieldManager is the field manager of all writes by our writers.
// Upstream: kube-controller-manager writes under the same name.
const FieldManager = "kube-controller-manager"

// Manager identifies who changed an object: the field manager and how it wrote.
type Manager struct {
	Name        string
	Operation   string // "Apply" or "Update"
	Subresource string
	Time        time.Time
}

// Trace is a W3C trace context, in its two header values, and the length of the trace so far;
// package trace makes and reads it.
type Trace struct {
	Parent string `json:"traceparent,omitempty"`
	State  string `json:"tracestate,omitempty"`
	// Writes counts our successive writes that led to this message.
	Writes int `json:"hops,omitempty"`
	// Began is when the trace began, in milliseconds since 1970; 0 when not known.
	Began int64 `json:"began,omitempty"`
}

// ID is the trace id, as collectors show it; empty without a trace.
func (t Trace) ID() string {
	const version, length = len("00-"), 32
	if len(t.Parent) < version+length {
		return ""
	}
	return t.Parent[version : version+length]
}

// ID identifies the delta for de-duplication: the same change published twice has the same ID.
func (d Delta) ID() string {
	if d.Op == Mark || d.Op == Gap {
		return string(d.Op) + "/" + string(d.Kind) + "/" + d.ResourceVersion
	}
	return string(d.Op) + "/" + string(d.UID) + "/" + d.ResourceVersion
}

// SightTimeout is the time without a message of a heartbeat kind after which sight counts as broken:
// the API server itself renews a lease every ten seconds.
const SightTimeout = 15 * time.Second

// Sight is an interval in which the watcher received every change soon after it was made. An
// event that was not received in it did not happen; outside of it nothing can be concluded.
type Sight struct {
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Heard gives the sight after a message at that moment: the message extends the interval, or
// begins a new one after a break longer than [SightTimeout].
func (s Sight) Heard(at time.Time) Sight {
	switch {
	case s.Until.IsZero(), at.Sub(s.Until) > SightTimeout:
		return Sight{at, at}
	case at.After(s.Until):
		s.Until = at
	}
	return s
}

// String is the header value; "" for the zero Sight.
func (s Sight) String() string {
	if s == (Sight{}) {
		return ""
	}
	return s.Since.UTC().Format(time.RFC3339Nano) + " " + s.Until.UTC().Format(time.RFC3339Nano)
}

func parseSight(text string) (s Sight, err error) {
	if text == "" {
		return s, nil
	}
	since, until, two := strings.Cut(text, " ")
	if !two {
		return s, fmt.Errorf("%q is not two times", text)
	}
	if s.Since, err = parseTime(time.RFC3339Nano, since); err != nil {
		return Sight{}, err
	}
	if s.Until, err = parseTime(time.RFC3339Nano, until); err != nil {
		return Sight{}, err
	}
	return s, nil
}
