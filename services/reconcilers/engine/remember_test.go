package engine

import (
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A successful outcome is remembered if the controller asks for it, unless it has more than
// maxRemembered results and neither an answer nor a note.
func TestSuccessesAreRememberedWhereTheyMatter(t *testing.T) {
	for _, c := range []struct {
		what      string
		remembers bool
		results   int
		last      events.Status
		note      string
		want      bool
	}{
		{"the controller does not ask", false, 1, events.Unchanged, "", false},
		{"the controller asks", true, 1, events.Unchanged, "", true},
		{"a crowd", true, maxRemembered + 1, events.Unchanged, "", false},
		{"as many as are remembered", true, 64, events.Unchanged, "", true},
		{"one more than that", true, 65, events.Unchanged, "", false},
		{"a crowd, and an answer", true, maxRemembered + 1, events.Answered, "", true},
		{"a crowd, and a note", true, maxRemembered + 1, events.Unchanged, "{}", true},
		{"a crowd, and an answer that is not asked for", false, maxRemembered + 1, events.Answered, "", false},
	} {
		o := begun(t, Settings{})
		o.engine.described.Remembers = c.remembers
		done := make([]events.Result, c.results)
		for i := range done {
			done[i] = events.Result{Status: events.Unchanged, Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "p"}}
		}
		done[c.results-1].Status = c.last
		if c.note != "" {
			done[c.results-1].Answer = &events.Answer{Note: json.RawMessage(c.note)}
		}
		o.engine.Outcome(1, events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: 10, Results: done})
		o.run()
		if _, remembered := o.engine.last(web, events.LaneWrite); remembered != c.want {
			t.Errorf("%s: remembered %v, want %v", c.what, remembered, c.want)
		}
	}
}
