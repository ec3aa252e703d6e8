package events

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The reasons for refusing, with [HeldCode], a command that a write limit of its controller holds:
// there is no room and no approval, or a person has denied the write. Result.Cause is the limit. The
// key is decided again at the latest after [HeldRetry].
const (
	Held   = "Held"
	Denied = "Denied"
)

// HeldCode is the HTTP status of held and denied commands, that of too many requests.
const HeldCode = 429

// HeldRetry is the longest back-off of a key whose writes are held. A change of the key's object,
// such as an approval, ends it at once.
const HeldRetry = 30 * time.Second

// HeldBackoff is the back-off of a key whose writes are held, where it would be d for another failure: a
// limit has room again sooner or later, but not within milliseconds.
func HeldBackoff(d time.Duration) time.Duration { return min(max(d, time.Second), HeldRetry) }

// The annotations with which a person approves or denies held writes. The uid of the object follows:
// a controller may copy an object's annotations to the objects that it makes, and a copy must approve
// nothing.
const (
	approvedPrefix = "millrace.io/approved-"
	deniedPrefix   = "millrace.io/denied-"
)

// Approval is what a person has decided about the held writes of a controller for one of its
// objects. It is in an annotation of the object: the API server decides who may write it, and the
// record has it.
type Approval struct {
	// Limits are the write limits that the decision is about.
	Limits []string `json:"limits"`
	// Generation is the generation of the object when the person decided. A decision about
	// another generation does not count. It is 0 for an object without generations.
	Generation int64 `json:"generation,omitempty"`
	// By is the user name that the API server gave the person.
	By string `json:"by,omitempty"`
	// Because is the person's reason; may be empty.
	Because string `json:"because,omitempty"`
}

// ApprovalAnnotations are the annotations of an object for an approval and for a denial.
func ApprovalAnnotations(uid types.UID) (approved, denied string) {
	return approvedPrefix + string(uid), deniedPrefix + string(uid)
}

// ApprovalOf gives the decision of a person about a limit, as the object has it. If the object has
// both an approval and a denial, the denial counts. ok is false if nothing has been decided, or if
// the decision cannot be read.
func ApprovalOf(object metav1.Object, limit string) (a Approval, approved, ok bool) {
	if object == nil || object.GetUID() == "" {
		return a, false, false
	}
	yes, no := ApprovalAnnotations(object.GetUID())
	for _, annotation := range []string{no, yes} {
		text, there := object.GetAnnotations()[annotation]
		if !there {
			continue
		}
		var read Approval
		if json.Unmarshal([]byte(text), &read) != nil || read.Generation != object.GetGeneration() || !slices.Contains(read.Limits, limit) {
			continue
		}
		return read, annotation == yes, true
	}
	return a, false, false
}

// WriteCount is how many writes of a turn count against a write limit.
type WriteCount struct {
	Limit string `json:"limit"`
	// Namespace is set for a limit that counts each namespace by itself.
	Namespace string `json:"namespace,omitempty"`
	Writes    int    `json:"writes"`
}

// OnlyHeld reports whether a turn failed only because some of its commands were held or denied.
func (o Outcome) OnlyHeld() bool {
	held := false
	for _, r := range o.Results {
		switch {
		case r.Held():
			held = true
		case !r.OK() && r.Status != Skipped:
			return false
		}
	}
	return held
}

// Held reports whether a write limit refused the command.
func (r Result) Held() bool {
	return r.Status == Refused && r.Code == HeldCode && (r.Reason == Held || r.Reason == Denied)
}
