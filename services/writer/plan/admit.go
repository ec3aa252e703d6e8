package plan

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Refusal is why a turn, or a command, may not be carried out. The zero value is none.
type Refusal struct {
	Reason, Message string
	// Code is an HTTP status, and Cause more about the reason; most refusals have neither.
	Code  int
	Cause string
}

// Stale refuses a turn by the newest delta of its own object. A turn that was decided on an older
// spec, or on an object that is gone or being deleted, must not act: the change that made it stale
// brings the key another turn. A change of the status alone does not count, since most turns cause
// some themselves.
//
// A turn without a UID was decided when there was no such object.
//
// known is false if the log has no message for the object's name. If the decision saw the
// object, the object is then gone.
func Stale(t events.Turn, live events.Delta, known bool) Refusal {
	refuse := func(message string) Refusal { return Refusal{Reason: "Stale", Message: message} }
	switch {
	case t.Lane != events.LaneWrite:
		return Refusal{}
	case t.UID == "" && known && live.Op != events.Gone:
		return refuse("the decision saw no such object, and there is one")
	case t.UID == "":
		return Refusal{}
	case !known || live.Op == events.Gone:
		return refuse("the object is gone")
	case live.UID != t.UID:
		return refuse("another object has its name now")
	case live.Generation > t.Generation:
		return refuse("the object has a newer generation")
	case live.Deleting && live.Generation == 0 && kinds.CompareVersions(live.ResourceVersion, t.ResourceVersion) > 0:
		// Without generations the deletion cannot be told from the changes after it.
		return refuse("the object is on its way out")
	default:
		return Refusal{}
	}
}

// Over refuses a turn that rests on an ended epoch of a kind: the API server has been restored to
// an earlier time since, and what the decision saw may never have existed. now has the current
// epochs of those kinds. storage is the newest known epoch of the storage, which may be known
// before the kinds are listed again.
func Over(t events.Turn, now events.Epochs, storage uint64) Refusal {
	kind, over := t.Epochs.Over(now)
	switch {
	case over:
		return Refusal{Reason: "Stale", Message: "the API server was restored to an earlier time, and " + string(kind) + " have been told anew since"}
	case t.Epochs.Newest() < storage:
		return Refusal{Reason: "Stale", Message: "the API server was restored to an earlier time, and what the decision saw has not been told anew"}
	default:
		return Refusal{}
	}
}

// OtherTerm refuses a turn that was decided under another fencing token than that of the Lease now:
// kube-controller-manager has run the controller since, and the turn knows nothing of its writes. A token
// of 0 refuses every turn, since the writer does not hold the Lease.
func OtherTerm(t events.Turn, token uint64) Refusal {
	if token != 0 && t.Token == token {
		return Refusal{}
	}
	return Refusal{Reason: "Stale", Message: fmt.Sprintf("decided under the token %d of the Lease, which has the token %d now", t.Token, token)}
}

// Aged refuses turns older than a limit, such as those that an outage delayed: deciding again
// costs little, acting on a stale view may cost a lot. A limit of 0 refuses none.
func Aged(t events.Turn, now time.Time, limit time.Duration) Refusal {
	if limit > 0 && now.Sub(t.Now) > limit {
		return Refusal{Reason: "TooOld", Message: "the turn was decided " + now.Sub(t.Now).Round(time.Second).String() + " ago"}
	}
	return Refusal{}
}

// Refuse returns the results of a turn that may not be carried out.
func (r Refusal) Refuse(t events.Turn) []events.Result {
	results := make([]events.Result, 0, len(t.Commands))
	for i, c := range t.Commands {
		results = append(results, events.Result{
			Command: i, Status: events.Refused, Ref: c.Ref(), Reason: r.Reason, Message: r.Message,
		})
	}
	return results
}
