package plan

import (
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// A held command makes no request, and the others are carried out. Of a turn that was delivered before,
// a held command may have been carried out then: the plan looks.
func TestWhatAWriteLimitHolds(t *testing.T) {
	create := func(name string) events.Command {
		return events.Command{Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "ns", Name: name, Body: json.RawMessage(`{"spec":{}}`)}
	}
	held := Refusal{Code: 429, Reason: events.Held, Cause: "pods", Message: "there is no room"}
	for what, again := range map[string]bool{"delivered first": false, "delivered again": true} {
		t.Run(what, func(t *testing.T) {
			var wrote, looked []string
			p := New(turn(create("a"), create("b"), create("c")), Options{Again: again, Held: map[int]Refusal{1: held, 2: held}})
			results := run(t, p, func(r Request) Response {
				if !r.Verb.Writes() {
					looked = append(looked, r.Name)
					if r.Name == "b" {
						return Response{Code: 200, Body: json.RawMessage(`{"spec":{}}`), Object: Object{UID: "b", ResourceVersion: "7"}}
					}
					return Response{Code: 404, Reason: "NotFound"}
				}
				wrote = append(wrote, r.Name)
				return Response{Code: 201, Object: Object{UID: "u", ResourceVersion: "8"}}
			})
			if len(wrote) != 1 || wrote[0] != "a" || results[0].Status != events.Applied {
				t.Errorf("written are %v, and the first is %+v", wrote, results[0])
			}
			if last := results[2]; !last.Held() || last.Cause != "pods" || last.Message != held.Message || last.Unsure != again {
				t.Errorf("the result of the last command is %+v, want it held", last)
			}
			if got := results[1]; again && got.Status != events.Unchanged || !again && !got.Held() || (len(looked) > 0) != again {
				t.Errorf("the result of a command that may have been carried out before is %+v, with looks at %v", got, looked)
			}
		})
	}
}

// A turn of another term is refused, and every turn while the writer does not hold the Lease.
func TestTurnsOfOtherTerms(t *testing.T) {
	for name, c := range map[string]struct {
		turn, token uint64
		refused     bool
	}{
		"of this term":        {turn: 7, token: 7},
		"of an earlier term":  {turn: 6, token: 7, refused: true},
		"of no term":          {turn: 0, token: 7, refused: true},
		"without the Lease":   {turn: 7, token: 0, refused: true},
		"of no term, without": {turn: 0, token: 0, refused: true},
	} {
		if got := OtherTerm(events.Turn{Token: c.turn}, c.token); (got != Refusal{}) != c.refused || c.refused && got.Reason != "Stale" {
			t.Errorf("%s: the turn is refused with %+v, want it refused: %t", name, got, c.refused)
		}
	}
}
