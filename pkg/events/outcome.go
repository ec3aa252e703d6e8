package events

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Outcome is what became of the commands of one turn.
type Outcome struct {
	Controller string `json:"controller"`
	Key        Key    `json:"key"`
	Lane       Lane   `json:"lane"`
	// Turn is the turn's sequence in its stream.
	Turn uint64 `json:"turn"`
	// Decided is the turn's Now, by the clock of the reconcilers, which may be ahead of the
	// writer's. A stream of turns that has lost its end gives the same
	// sequences a second time, and this tells which of the turns is meant; zero where the
	// turn could not be read, and from older versions.
	Decided time.Time `json:"decided,omitzero"`
	Results []Result  `json:"results"`
	// UID and ResourceVersion are the turn's: the key's own object as it was when
	// that was decided. Empty when there was none, or the version means nothing any
	// more since its epoch has ended.
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Epochs are those of the kinds that the commands are about, as the writer
	// knew them when it was done.
	Epochs Epochs    `json:"epochs,omitempty"`
	At     time.Time `json:"at"`
	Trace  Trace     `json:"trace,omitzero"`
}

// Status is the fate of a command.
type Status string

const (
	// Applied: the request succeeded; Version is the object's new version.
	Applied Status = "applied"
	// Answered: what was asked for has been read: Answer has it.
	Answered Status = "answered"
	// Unchanged: the effect was there already, or the request changed nothing.
	Unchanged Status = "unchanged"
	// Conflict: a condition did not hold (409); look again, decide again.
	Conflict Status = "conflict"
	// Absent: the object that the command is about is not there (404).
	Absent Status = "gone"
	// Refused: it may not or cannot be done (a rule of the API server, a
	// promise of the controller, a stale turn); Message says why.
	Refused Status = "refused"
	// Failed: the request could not be completed after the writer's retries.
	Failed Status = "failed"
	// Skipped: not tried, because an earlier command of the batch failed.
	Skipped Status = "skipped"
	// DryRun: the API server accepted it and, as asked, did nothing.
	DryRun Status = "dry-run"
)

// BadSignature is the reason of a refusal of what lies where a turn should and is of no
// reconciler. It says nothing of the turns before it: a forger who puts such a message behind a
// turn that is under way must not have the fence opened by its refusal.
const BadSignature = "BadSignature"

// Forged tells whether the outcome is of a message that was refused as [BadSignature].
func (o Outcome) Forged() bool {
	return len(o.Results) > 0 && o.Results[0].Status == Refused && o.Results[0].Reason == BadSignature
}

// IsOf tells whether the outcome is of the turn at a sequence that was decided at a
// moment; where one of the moments is not known, the sequence alone has to do.
func (o Outcome) IsOf(sequence uint64, decided time.Time) bool {
	return o.Turn == sequence && (o.Decided.IsZero() || decided.IsZero() || o.Decided.Equal(decided))
}

// apart is how far two clocks may be apart without being corrected for.
const apart = time.Second

// Ahead tells whether the outcome is dated later than a moment by which it was known: the
// clock of the reconcilers that decided, or of the writer, was wrong, or the reader's is.
func (o Outcome) Ahead(by time.Time) bool {
	return o.At.After(by.Add(apart)) || o.Decided.After(by.Add(apart))
}

// KnownBy is the outcome as a reader has it that knew it at a moment of its own clock: made
// and decided no later than that. So a wait that begins with it takes no longer than it
// should, however far the clock was ahead that dated it. Zero leaves it as it is.
func (o Outcome) KnownBy(by time.Time) Outcome {
	if !by.IsZero() {
		o.At, o.Decided = earlier(o.At, by), earlier(o.Decided, by)
	}
	return o
}

// Noted is a moment of which a note of the outcome tells as of one that had been: no later
// than what wrote it was decided.
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

// Result is the fate of one command.
type Result struct {
	// Command is the position in Turn.Commands, from 0.
	Command int    `json:"command"`
	Status  Status `json:"status"`

	Ref Ref       `json:"ref,omitzero"`
	UID types.UID `json:"uid,omitempty"`
	// Version is the resourceVersion after the write, where the answer had one. Of
	// what did not succeed it is the version that stood in the way, or that was
	// found when it was given up: who decides next must have seen that.
	Version string `json:"version,omitempty"`
	// Removed is true when a delete took the object away at once.
	Removed bool `json:"removed,omitempty"`

	// Code, Reason and Message are the API server's answer to what did not
	// succeed. Cause is the first detail cause, such as "NamespaceTerminating".
	Code    int    `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Message string `json:"message,omitempty"`
	// Answer is what comes back to the controller; nil where nothing does.
	Answer *Answer `json:"answer,omitempty"`
	// AuditID is the request's id in the API server's audit log.
	AuditID string `json:"auditID,omitempty"`
	// Unsure is true where it is unknown whether a request of ours has done it: the
	// command did not succeed, but an earlier request for it may have had its effect,
	// since the answer was lost or another writer had the turn before; or
	// what it deletes is gone after an answer was lost. The audit log may know.
	Unsure bool `json:"unsure,omitempty"`
}

// Answer is what a command brings back.
type Answer struct {
	// Body is what was read for an ask, as JSON; empty where that failed.
	Body json.RawMessage `json:"body,omitempty"`
	// Note is the command's.
	Note json.RawMessage `json:"note,omitempty"`
}

// Answers is a digest of what the commands brought back; 0 when that is nothing.
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

// OK is true when the effect that was wanted is there.
func (r Result) OK() bool {
	return r.Status == Applied || r.Status == Answered || r.Status == Unchanged || r.Status == DryRun
}

// OK is true when every command's effect is there.
func (o Outcome) OK() bool {
	for _, r := range o.Results {
		if !r.OK() {
			return false
		}
	}
	return true
}

// Failure is the first result that is neither OK nor merely skipped.
func (o Outcome) Failure() (Result, bool) {
	for _, r := range o.Results {
		if !r.OK() && r.Status != Skipped {
			return r, true
		}
	}
	return Result{}, false
}

// Concerns gives the kinds whose epochs an outcome has: that of the key's object, if there is
// one, and those of results that are seen in a log, or were read from the storage.
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

// Dated gives now, the epochs of the kinds that the results of a turn concern, with those of what
// was read as the turn has them. It was read after the decision, and the storage may have gone
// back, and been told anew, between the reading and now.
func (t Turn) Dated(results []Result, now Epochs) Epochs {
	for _, r := range results {
		if epoch, known := now[r.Ref.Kind]; known && r.Status == Answered {
			now[r.Ref.Kind] = min(epoch, t.Epochs[r.Ref.Kind])
		}
	}
	return now
}

// Over tells whether the outcome is of an epoch that has ended by now: what was done may never
// have been, and what was read may not be so.
func (o Outcome) Over(now func(kinds.Name) (epoch uint64, known bool)) bool {
	for kind, epoch := range o.Epochs {
		if current, known := now(kind); known && current > epoch {
			return true
		}
	}
	return false
}
