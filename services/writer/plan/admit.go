package plan

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Refusal is why a whole turn may not be carried out. The zero value is none.
type Refusal struct{ Reason, Message string }

// Stale judges a turn by the newest delta of its own object. A turn that was
// decided on an older spec, or on an object that is gone or leaving, must not
// act: the change that made it stale brings the key another turn. A change of
// the status alone does not count, since most turns cause some themselves.
//
// A turn that names no object says that there was none.
//
// known is false when the state stream has nothing under the object's name,
// which for an object that the decision saw means that it is gone.
func Stale(t events.Turn, live events.Delta, known bool) Refusal {
	refuse := func(message string) Refusal { return Refusal{Reason: "Stale", Message: message} }
	switch {
	case t.Lane != events.Act:
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
		// Without generations a deletion cannot be told from what came after it.
		return refuse("the object is on its way out")
	default:
		return Refusal{}
	}
}

// Over refuses a turn that rests on an epoch of a kind that has ended: the API
// server was restored to an earlier time since, and what the decision saw may
// never have been. now are the epochs of those kinds; storage is that of the storage,
// as far as anybody has found out, which may be before they are told anew.
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

// Aged refuses turns older than a limit, such as those that an outage held up:
// deciding again costs little, acting on an old picture may cost a lot.
func Aged(t events.Turn, now time.Time, limit time.Duration) Refusal {
	if limit > 0 && now.Sub(t.Now) > limit {
		return Refusal{Reason: "TooOld", Message: "the turn was decided " + now.Sub(t.Now).Round(time.Second).String() + " ago"}
	}
	return Refusal{}
}

// Refuse is the result of every command of a turn that may not be carried out.
func (r Refusal) Refuse(t events.Turn) []events.Result {
	results := make([]events.Result, 0, len(t.Commands))
	for i, c := range t.Commands {
		results = append(results, events.Result{
			Command: i, Status: events.Refused, Ref: c.Ref(), Reason: r.Reason, Message: r.Message,
		})
	}
	return results
}
