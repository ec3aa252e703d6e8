package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// StallAfter is how long a controller with work may decide nothing before it counts as stalled.
const StallAfter = 30 * time.Second

// Stall says that a controller has work but decides nothing, and why.
type Stall struct {
	Controller string    `json:"controller"`
	Condition  Condition `json:"condition"`
	// Detail is the subject of the condition: kinds, a key or an error.
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"`
	// Work is how many keys and messages wait, as far as known.
	Work int `json:"work,omitempty"`
}

// Condition is why a controller decides nothing. It is a label of a metric, so there are few
// values.
type Condition string

// The conditions.
const (
	// Deciding: a decision does not return.
	Deciding Condition = "Deciding"
	// BusRefuses: the bus does not store turns, or does not read streams.
	BusRefuses Condition = "BusRefuses"
	// NotRead: a kind has not been read to its end, or has never been listed.
	NotRead Condition = "NotRead"
	// EpochNotTold: the storage was restored, and a kind has not been published completely
	// since.
	EpochNotTold Condition = "EpochNotTold"
	// CacheInconsistent: the cache of a kind differs from the watcher's census.
	CacheInconsistent Condition = "CacheInconsistent"
	// NoOutcome: no writer carries out the controller's turns.
	NoOutcome Condition = "NoOutcome"
	// NotSeen: written objects do not come back from the watcher.
	NotSeen Condition = "NotSeen"
	// NotRunning: no replica of the reconcilers reports that it runs the controller.
	NotRunning Condition = "NotRunning"
	// KeysWait: keys wait, and none of the other conditions holds.
	KeysWait Condition = "KeysWait"
)

// meanings has the reason of each condition, and the advice.
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

// Conditions are the conditions of controllers, sorted.
func Conditions() []Condition {
	all := make([]Condition, 0, len(meanings))
	for c := range meanings {
		all = append(all, c)
	}
	slices.Sort(all)
	return all
}

// Reason describes the condition in a phrase.
func (c Condition) Reason() string { return cmp.Or(meanings[c][0], keyReasons[c], string(c)) }

// Advice tells an operator what to do about the condition.
func (c Condition) Advice() string { return meanings[c][1] }

// String is the reason and the detail.
func (s Stall) String() string {
	if s.Detail == "" {
		return s.Condition.Reason()
	}
	return fmt.Sprintf("%s: %s", s.Condition.Reason(), s.Detail)
}

// Unwatched is a kind that a watcher has been unable to watch for [StallAfter], and the API
// server's reason, such as a missing permission.
type Unwatched struct {
	Kind   kinds.Name `json:"kind"`
	Reason string     `json:"reason"`
	Since  time.Time  `json:"since"`
}

// Report is one reconcilers replica's report on the controllers that it runs, published every
// [Every] and at once when it changes. A watcher's report has the kinds that it cannot
// watch, and is published as often while there are any.
type Report struct {
	Replica     string      `json:"replica"`
	Controllers []string    `json:"controllers,omitempty"`
	Stalled     []Stall     `json:"stalled,omitempty"`
	Unwatched   []Unwatched `json:"unwatched,omitempty"`
}

const (
	// Every is how often a replica publishes an unchanged report.
	Every = 20 * time.Second
	// Age is how long a report counts: a replica that is alive has published another by
	// then.
	Age = 3 * Every
	// maxDetail bounds the detail of a stall, in bytes, since it may quote an error;
	// maxUnwatched bounds the kinds in a report.
	maxDetail    = 500
	maxUnwatched = 100
	// maxReport bounds a report, in bytes: three times the size of a report in which all
	// controllers are stalled with long details.
	maxReport = 256 << 10
)

// Encode gives the report as a message without a subject. It cuts details at maxDetail bytes.
func (r Report) Encode() (events.Message, error) {
	r.Stalled = slices.Clone(r.Stalled)
	for i, s := range r.Stalled {
		r.Stalled[i].Detail = s.Detail[:min(len(s.Detail), maxDetail)]
	}
	r.Unwatched = slices.Clone(r.Unwatched[:min(len(r.Unwatched), maxUnwatched)])
	for i, u := range r.Unwatched {
		r.Unwatched[i].Reason = u.Reason[:min(len(u.Reason), maxDetail)]
	}
	return events.EncodeJSON(r, events.Trace{})
}

// DecodeReport reads a message of [Report.Encode].
//
// Errors: the message is no report, or too large; the name of the replica is too long.
func DecodeReport(m events.Message) (r Report, err error) {
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
