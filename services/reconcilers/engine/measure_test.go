package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// figured records the figures measured, and the gauges reported.
func figured() (settings Settings, measured, shared *[]string) {
	measured, shared = &[]string{}, &[]string{}
	return Settings{
		Measured: func(f reconcile.Figure) { *measured = append(*measured, f.Metric) },
		Shared: func(key events.Key, figures []reconcile.Figure) {
			said := key.Name
			for _, f := range figures {
				said += " " + f.Metric
			}
			*shared = append(*shared, said)
		},
	}, measured, shared
}

// A figure counts when the turn is stored, or when its outcome is known.
func TestWhenAFigureCounts(t *testing.T) {
	for what, c := range map[string]struct {
		status events.Status
		want   string
	}{
		"done": {events.Applied, "asked created"}, "failed": {events.Failed, "asked notCreated"},
	} {
		settings, measured, _ := figured()
		o := begun(t, settings)
		if got := strings.Join(*measured, " "); got != "asked" {
			t.Errorf("%s: before the outcome %q were measured", what, got)
		}
		result := events.Result{Status: c.status, UID: "uid-x", Version: "5", Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "web-1-0"}}
		o.outcome(events.LaneWrite, 10, result)
		o.outcome(events.LaneWrite, 10, result) // it comes twice
		if got := strings.Join(*measured, " "); got != c.want {
			t.Errorf("%s: %q were measured, want %q", what, got, c.want)
		}
	}
}

// The outcome of another replica's turn says nothing about this one's figures.
func TestFiguresOfATurnThatWasOvertaken(t *testing.T) {
	settings, measured, _ := figured()
	o := begun(t, settings)
	o.outcome(events.LaneWrite, 12, created("web-1-0", "5"))
	o.outcome(events.LaneWrite, 10, created("web-1-0", "5"))
	if got := strings.Join(*measured, " "); got != "asked" {
		t.Errorf("%q were measured", got)
	}
}

// Each decision reports its gauges, also about a deleted object.
func TestWhatIsSaidForGauges(t *testing.T) {
	settings, _, shared := figured()
	o := open(t, settings)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	o.change(kinds.ReplicaSets.Kind, events.Gone, aSet("web", 2, 0, 0, ""))
	if got := strings.Join(*shared, ", "); got != "web wanted, web" {
		t.Errorf("%q was said", got)
	}
}

// A duration is measured from the decision until its outcome, and not before.
func TestHowLongItTook(t *testing.T) {
	for status, want := range map[events.Status]string{events.Applied: "took 3", events.Failed: "failed after 3"} {
		var measured []string
		o := open(t, Settings{Measured: func(f reconcile.Figure) {
			if f.Took {
				measured = append(measured, fmt.Sprint(f.Metric, " ", f.Value))
			}
		}})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "times"))
		o.recalled(Past{}, Past{})
		name := o.take(events.LaneWrite).Commands[0].Name
		o.answer(events.LaneWrite, 10, nil)
		o.pass(3 * time.Second)
		if len(measured) > 0 {
			t.Errorf("before the outcome %q is measured, want nothing", measured)
		}
		result := created(name, "5")
		result.Status = status
		o.outcome(events.LaneWrite, 10, result)
		if got := strings.Join(measured, ", "); got != want {
			t.Errorf("%v: measured is %q, want %q", status, got, want)
		}
	}
}

// Decisions report marks like gauges.
func TestWhatIsSaidForMarks(t *testing.T) {
	settings, _, shared := figured()
	marking := toy()
	marking.Metrics = append(slices.Clone(marking.Metrics[:3]), reconcile.Metric{Name: "wanted", Sort: reconcile.Mark})
	o := open(t, settings)
	o.engine = New(marking, o.memory, o, settings, o.now)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	if got := strings.Join(*shared, ", "); got != "web wanted" {
		t.Errorf("%q was said", got)
	}
}

// A turn ends with the status of the first command that failed, or with 200.
func TestWithWhichStatusATurnEnds(t *testing.T) {
	var codes []int
	o := open(t, Settings{Answered: func(code int, _ time.Duration) { codes = append(codes, code) }})
	for _, r := range [][]events.Result{nil, {{Status: events.Applied}}, {{Status: events.Applied}, {Status: events.Refused, Code: 403}}, {{Status: events.Failed}}} {
		o.engine.answered(events.Outcome{Results: r}, 0)
	}
	if !slices.Equal(codes, []int{200, 200, 403, 500}) {
		t.Errorf("the outcomes are measured with the codes %v, want 200, 200, 403, 500", codes)
	}
	l := &lane{stages: stageTimes{turn: 7, decided: o.engine.now.Add(-time.Second)}}
	if own, other := o.engine.turnDuration(l, events.Outcome{Turn: 7}), o.engine.turnDuration(l, events.Outcome{Turn: 8}); own != time.Second || other != 0 {
		t.Errorf("the turns took %v and %v, want 1s and 0", own, other)
	}
}
