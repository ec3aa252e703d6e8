package events

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Standstill is how long a controller that has work may decide nothing before it is
// said to be stalled.
const Standstill = 30 * time.Second

// Stall says that a controller has work, decides nothing, and why.
type Stall struct {
	Controller string    `json:"controller"`
	Condition  Condition `json:"condition"`
	// Detail is what the condition is about: kinds, a key or an error.
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"`
	// Work is how many keys and messages wait, as far as is known.
	Work int `json:"work,omitempty"`
}

// Condition is why a controller decides nothing. There are few: it is a label of a
// metric.
type Condition string

// The conditions.
const (
	// Deciding: one decision does not end.
	Deciding Condition = "Deciding"
	// BusRefuses: turns cannot be stored, or streams not read.
	BusRefuses Condition = "BusRefuses"
	// NotRead: a kind has not been read to its end, or never been listed.
	NotRead Condition = "NotRead"
	// EpochNotTold: the storage went back, and a kind has not been told to its end since.
	EpochNotTold Condition = "EpochNotTold"
	// CacheInconsistent: what is held of a kind is not what the watcher counts.
	CacheInconsistent Condition = "CacheInconsistent"
	// NoOutcome: no writer carries its turns out.
	NoOutcome Condition = "NoOutcome"
	// NotSeen: what was written does not come back from the watcher.
	NotSeen Condition = "NotSeen"
	// NotRunning: no replica of the reconcilers says that the controller falls to it.
	NotRunning Condition = "NotRunning"
	// KeysWait: keys wait, and none of the other conditions holds.
	KeysWait Condition = "KeysWait"
)

// meanings are the conditions in words, and what to do.
var meanings = map[Condition][2]string{
	Deciding:          {"a decision has not ended", "restart the reconcilers and report it with a goroutine profile"},
	BusRefuses:        {"the bus refuses to store or to read", "look at the NATS server and its disk"},
	NotRead:           {"it waits until a kind has been read to its end", "look whether the watcher runs and may list and watch the kind"},
	EpochNotTold:      {"the API server's storage went back, and it waits until a kind has been told anew", "look whether the watcher runs and may list and watch the kind"},
	CacheInconsistent: {"its cache is inconsistent, and it waits for a consistent snapshot", "look whether the watcher runs; it mends the streams"},
	NoOutcome:         {"its turns have no outcome", "look whether a writer runs and carries this controller out"},
	NotSeen:           {"what it wrote has not been seen", "look whether the watcher runs and may list and watch the kind"},
	NotRunning:        {"no replica of the reconcilers runs it", "start the reconcilers, or name the controller in --controllers"},
	KeysWait:          {"keys wait for their turn", "report it with the log of the reconcilers"},
}

// Conditions are those of controllers, sorted.
func Conditions() []Condition {
	all := make([]Condition, 0, len(meanings))
	for c := range meanings {
		all = append(all, c)
	}
	slices.Sort(all)
	return all
}

// Reason is the condition in a phrase.
func (c Condition) Reason() string { return cmp.Or(meanings[c][0], keyReasons[c], string(c)) }

// Advice is what to do about it.
func (c Condition) Advice() string { return meanings[c][1] }

// String is the reason, and what it is about.
func (s Stall) String() string {
	if s.Detail == "" {
		return s.Condition.Reason()
	}
	return fmt.Sprintf("%s: %s", s.Condition.Reason(), s.Detail)
}

// Unwatched is a kind that a watcher has not been able to watch for [Standstill], and
// what the API server says, such as that a right is missing.
type Unwatched struct {
	Kind   kinds.Name `json:"kind"`
	Reason string     `json:"reason"`
	Since  time.Time  `json:"since"`
}

// Report is what one replica of the reconcilers says about the controllers that fall to
// it: every [ReportEvery], and at once when it changes. Of the watchers it is which kinds
// of theirs they cannot watch, said as often while there are any.
type Report struct {
	Replica     string      `json:"replica"`
	Controllers []string    `json:"controllers,omitempty"`
	Stalled     []Stall     `json:"stalled,omitempty"`
	Unwatched   []Unwatched `json:"unwatched,omitempty"`
}

const (
	// ReportEvery is how often a replica says how it stands although nothing has changed.
	ReportEvery = 20 * time.Second
	// ReportAge is for how long that counts: no replica says so later than that.
	ReportAge = 3 * ReportEvery
	// maxDetail bounds the detail of a stall, which may quote an error, and maxUnwatched
	// how many kinds a report names.
	maxDetail    = 500
	maxUnwatched = 100
	// maxReport bounds a report, in bytes: three times what one of all controllers takes
	// when all stand still and have long details.
	maxReport = 256 << 10
)

// Encode gives the report as a message without a subject. Details are cut short.
func (r Report) Encode() (Message, error) {
	r.Stalled = slices.Clone(r.Stalled)
	for i, s := range r.Stalled {
		r.Stalled[i].Detail = s.Detail[:min(len(s.Detail), maxDetail)]
	}
	r.Unwatched = slices.Clone(r.Unwatched[:min(len(r.Unwatched), maxUnwatched)])
	for i, u := range r.Unwatched {
		r.Unwatched[i].Reason = u.Reason[:min(len(u.Reason), maxDetail)]
	}
	return EncodeJSON(r, Trace{})
}

// DecodeReport reads what [Report.Encode] wrote.
//
// Errors: it is none, or larger than any is; its replica has an impossible name.
func DecodeReport(m Message) (r Report, err error) {
	if len(m.Data) > maxReport {
		return r, fmt.Errorf("read a report of the reconcilers: it has %d bytes, more than %d", len(m.Data), maxReport)
	}
	if err = json.Unmarshal(m.Data, &r); err != nil {
		return r, fmt.Errorf("read a report of the reconcilers: %w", err)
	}
	if len(r.Replica) > maxName {
		return Report{}, fmt.Errorf("read a report of the reconcilers: its replica has a name of %d bytes", len(r.Replica))
	}
	return r, nil
}
