package plan

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// A create whose answer was lost may have been carried out, whatever the API server answers now:
// the plan looks for the object before it counts the create as refused.
func TestARefusedCreateIsLookedForWhereItsAnswerWasLost(t *testing.T) {
	lost, quota := Response{Code: 504}, Response{Code: 403, Reason: "Forbidden"}
	starting := Response{Code: 403, Reason: ReasonNotImpersonated}
	there := Response{Code: 200, Object: Object{UID: "uid"}, Body: []byte(owned)}
	gone := Response{Code: 404, Reason: "NotFound"}
	for name, c := range map[string]struct {
		answers []Response
		want    events.Status
		unsure  bool
	}{
		"refused at once":                            {[]Response{quota}, events.Refused, false},
		"the writer has no rights":                   {[]Response{starting}, events.Refused, false},
		"refused, and it is there":                   {[]Response{lost, quota, there}, events.Applied, false},
		"refused, and it is not there":               {[]Response{lost, quota, gone}, events.Refused, true},
		"the server does not know the writer yet":    {[]Response{lost, starting, starting, {Code: 201, Object: there.Object}}, events.Applied, false},
		"it knows the writer, and has the object":    {[]Response{lost, starting, {Code: 409, Reason: "AlreadyExists"}, there}, events.Applied, false},
		"it knows the writer when it is looked for":  {[]Response{lost, quota, starting, there}, events.Applied, false},
		"it does not know us, and then has no quota": {[]Response{lost, starting, quota, gone}, events.Refused, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(turn(create("p")), Options{})
			for i, a := range c.answers {
				requests := p.Next()
				if len(requests) != 1 {
					t.Fatalf("%d requests before answer %d", len(requests), i)
				}
				p.Answer(0, a)
			}
			results, done := p.Results()
			if !done || results[0].Status != c.want || results[0].Unsure != c.unsure {
				t.Errorf("done: %t; the result is %+v", done, results)
			}
		})
	}
}
