package events

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// Outcome is the result of carrying out the commands of one turn.
type Outcome struct {
	Controller string `json:"controller"`
	Key        Key    `json:"key"`
	Lane       Lane   `json:"lane"`
	// Turn is the turn's sequence in its stream.
	Turn uint64 `json:"turn"`
	// Decided is the turn's Now, by the clock of the reconcilers, which may be ahead of the
	// writer's. A stream of turns that has lost its end assigns the same sequences again;
	// Decided then tells the turns apart. Zero when the writer could not read the turn, and in
	// outcomes of older versions.
	Decided time.Time `json:"decided,omitzero"`
	Results []Result  `json:"results"`
	// UID and ResourceVersion are the turn's: the key's own object as the decision saw it. Empty
	// when there was no object, or when the version is meaningless because its epoch has ended.
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// WriteCounts are the writes of the turn that count against write limits; empty without limits.
	WriteCounts []WriteCount `json:"writeCounts,omitempty"`
	// Epochs are the epochs of the commands' kinds, as the writer knew them when it had carried
	// out the turn.
	Epochs Epochs    `json:"epochs,omitempty"`
	At     time.Time `json:"at"`
	Trace  Trace     `json:"trace,omitzero"`
}

// Status is the result of a command.
type Status string

const (
	// Applied: the request succeeded; Version is the object's new version.
	Applied Status = "applied"
	// Answered: the ask succeeded; Answer has the result.
	Answered Status = "answered"
	// Unchanged: the effect existed already, or the request changed nothing.
	Unchanged Status = "unchanged"
	// Conflict: a condition did not hold (409); the controller has to decide again on a newer
	// view.
	Conflict Status = "conflict"
	// Absent: the command's object does not exist (404).
	Absent Status = "gone"
	// Refused: the command may not or cannot be carried out (a rule of the API server, a promise
	// of the controller, a stale turn); Message says why.
	Refused Status = "refused"
	// Failed: the request could not be completed after the writer's retries.
	Failed Status = "failed"
	// Skipped: not tried, because an earlier command of the batch failed.
	Skipped Status = "skipped"
	// DryRun: the API server accepted it and, as asked, did nothing.
	DryRun Status = "dry-run"
)

// BadSignature is the reason for refusing a message in a stream of turns that no reconciler
// signed. The refusal says nothing about earlier turns: a forger who stores such a message
// behind a turn in flight must not open the fence by its refusal.
const BadSignature = "BadSignature"

// Forged reports whether the outcome belongs to a message that was refused with [BadSignature].
func (o Outcome) Forged() bool {
	return len(o.Results) > 0 && o.Results[0].Status == Refused && o.Results[0].Reason == BadSignature
}

// IsOf reports whether the outcome belongs to the turn with this sequence that was decided at that
// moment. If one of the two moments is not known, only the sequence counts.
func (o Outcome) IsOf(sequence uint64, decided time.Time) bool {
	return o.Turn == sequence && (o.Decided.IsZero() || decided.IsZero() || o.Decided.Equal(decided))
}

// apart is the difference between two clocks that is tolerated without a correction.
const apart = time.Second

// Ahead reports whether the outcome is dated later than by, a moment at which the reader already
// knew it: the clock of the deciding reconcilers, of the writer or of the reader was wrong.
func (o Outcome) Ahead(by time.Time) bool {
	return o.At.After(by.Add(apart)) || o.Decided.After(by.Add(apart))
}

// KnownBy gives the outcome for a reader that knew it at by, on its own clock: At and Decided
// are moved to by if they are later. So a wait that starts at the outcome is not too long,
// however far ahead the other clock was. A zero by changes nothing.
func (o Outcome) KnownBy(by time.Time) Outcome {
	if !by.IsZero() {
		o.At, o.Decided = earlier(o.At, by), earlier(o.Decided, by)
	}
	return o
}

// Noted limits at, a past moment that the outcome's note contains, to the time of the decision
// that wrote the note.
func (o Outcome) Noted(at time.Time) time.Time {
	if o.Decided.IsZero() {
		return at
	}
	return earlier(at, o.Decided)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Result is the result of one command.
type Result struct {
	// Command is the position in Turn.Commands, from 0.
	Command int    `json:"command"`
	Status  Status `json:"status"`

	Ref Ref       `json:"ref,omitzero"`
	UID types.UID `json:"uid,omitempty"`
	// Version is the resourceVersion after the write, if the response had one. For a command
	// that did not succeed it is the version that conflicted, or that the writer found when it
	// gave up: the next decision must have seen that version.
	Version string `json:"version,omitempty"`
	// Removed is true when a delete removed the object at once.
	Removed bool `json:"removed,omitempty"`

	// Code, Reason and Message are the API server's response to a command that did not succeed.
	// Cause is the first detail cause, such as "NamespaceTerminating".
	Code    int    `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Message string `json:"message,omitempty"`
	// Answer is returned to the controller; nil when the command returns nothing.
	Answer *Answer `json:"answer,omitempty"`
	// AuditID is the request's id in the API server's audit log.
	AuditID string `json:"auditID,omitempty"`
	// Unsure is true when it is unknown whether a request of ours had an effect: either the
	// command did not succeed, but an earlier request for it may have, because its response was
	// lost or another writer had the turn before; or the object is as the command makes it (for a
	// delete, gone) after a response was lost. The audit log may know.
	Unsure bool `json:"unsure,omitempty"`
}

// Answer is the data that a command returns.
type Answer struct {
	// Body is the JSON that an ask read; empty when it failed.
	Body json.RawMessage `json:"body,omitempty"`
	// Note is the command's Note.
	Note json.RawMessage `json:"note,omitempty"`
}

// Answers is a digest of the answers of all results; 0 when there are none.
func (o Outcome) Answers() uint64 {
	var h *xxhash.Digest
	for _, r := range o.Results {
		if r.Answer == nil {
			continue
		}
		if h == nil {
			h = xxhash.New()
		}
		for _, part := range [][]byte{r.Answer.Body, r.Answer.Note} {
			_, _ = h.Write(part)
			_, _ = h.WriteString("\x00")
		}
	}
	if h == nil {
		return 0
	}
	return h.Sum64()
}

// OK is true when the wanted effect exists.
func (r Result) OK() bool {
	return r.Status == Applied || r.Status == Answered || r.Status == Unchanged || r.Status == DryRun
}

// OK is true when the effect of every command exists.
func (o Outcome) OK() bool {
	for _, r := range o.Results {
		if !r.OK() {
			return false
		}
	}
	return true
}

// Failure is the first result that is neither OK nor Skipped.
func (o Outcome) Failure() (Result, bool) {
	for _, r := range o.Results {
		if !r.OK() && r.Status != Skipped {
			return r, true
		}
	}
	return Result{}, false
}

// Concerns gives the kinds whose epochs an outcome records: own, the kind of the key's object,
// if any, and the kinds of results that will be seen in a log or were read from the storage.
func Concerns(own kinds.Name, results []Result) (some []kinds.Name) {
	if own != "" {
		some = append(some, own)
	}
	for _, r := range results {
		if (r.Version != "" || r.Removed || r.Status == Answered) && !slices.Contains(some, r.Ref.Kind) {
			some = append(some, r.Ref.Kind)
		}
	}
	return some
}

// Dated gives now, the epochs of the kinds that a turn's results concern, lowered for kinds of
// which something was read (Answered) to the epoch that the turn has. The read happened after
// the decision, and the storage may have been restored, and published anew, between the read and
// now.
func (t Turn) Dated(results []Result, now Epochs) Epochs {
	for _, r := range results {
		if epoch, known := now[r.Ref.Kind]; known && r.Status == Answered {
			now[r.Ref.Kind] = min(epoch, t.Epochs[r.Ref.Kind])
		}
	}
	return now
}

// Over reports whether the outcome belongs to an epoch that has ended according to now: its writes
// may have been undone, and its answers may be wrong.
func (o Outcome) Over(now func(kinds.Name) (epoch uint64, known bool)) bool {
	for kind, epoch := range o.Epochs {
		if current, known := now(kind); known && current > epoch {
			return true
		}
	}
	return false
}

// Lacks reports whether the result was refused with [query.NoMatch] or [query.NoSubresource].
func (r Result) Lacks() bool {
	return r.Status == Refused && (r.Reason == query.NoMatch || r.Reason == query.NoSubresource)
}
