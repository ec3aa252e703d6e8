package record_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record"
)

// lines are happenings in short form, oldest first.
func lines(items []record.Happening) string {
	var out []string
	for _, h := range slices.Backward(items) {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", h.Noun, h.Object.Name, h.Event)))
	}
	return strings.Join(out, ", ")
}

func TestAChronicleHasEverythingInOrder(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		created := record.Created
		if !w.Linked {
			created = record.Changed // a delta without a link cannot tell
		}
		want := fmt.Sprintf("delta web %[1]s, turn web, outcome web, delta web-1 %[1]s, delta web changed, turn web, delta web-1 changed, outcome web, "+
			"turn web-1, outcome web-1, delta a %[1]s, delta a changed", created)
		c, err := w.record.Chronicle(w.Context(), record.Filter{}, record.Span{}, 100)
		w.Must(err)
		got := lines(c.Items)
		if !c.Whole || sorted(got) != sorted(want) {
			w.Errorf("the chronicle (whole: %v) has\n%s, want\n%s", c.Whole, got, want)
		}
		if !slices.IsSortedFunc(c.Items, func(a, b record.Happening) int { return b.Time.Compare(a.Time) }) {
			w.Error("the chronicle is not in order")
		}
		turn := c.Items[slices.IndexFunc(c.Items, func(h record.Happening) bool { return h.Noun == "turn" })]
		if turn.Object != webSet || turn.Who != replicaSets || turn.Lane != events.LaneWrite.String() {
			w.Errorf("the last turn is %+v", turn)
		}
	})
}

func sorted(list string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(list, ", ")), ", ")
}

func TestAChronicleSaysHowFarItGoesBack(t *testing.T) {
	tell(t, func(w *world) {
		for i := range 3000 {
			w.Is(pod(fmt.Sprint("p", i%7)), "x", nil)
		}
		begun := time.Now()
		w.Is(web, "x", nil)
		c, err := w.record.Chronicle(w.Context(), record.Filter{}, record.Span{}, 10)
		w.Must(err)
		if c.Whole || len(c.Items) != 10 || !c.Since.Equal(c.Items[9].Time) || c.Items[0].Object != web {
			w.Errorf("whole %v since %v: %s", c.Whole, c.Since, lines(c.Items))
		}
		c, err = w.record.Chronicle(w.Context(), record.Filter{Name: "web"}, record.Span{}, 10)
		w.Must(err)
		if !c.Whole || lines(c.Items) != "delta web created" && lines(c.Items) != "delta web changed" {
			w.Errorf("the chronicle of one name (whole: %v) has %s", c.Whole, lines(c.Items))
		}
		c, err = w.record.Chronicle(w.Context(), record.Filter{}, record.Span{From: begun.Add(-3 * time.Second), To: begun}, 10)
		w.Must(err)
		if !c.Whole || len(c.Items) != 4 { // the span includes both ends
			w.Errorf("the chronicle of three seconds (whole: %v) has %s, want 4 items", c.Whole, lines(c.Items))
		}
		for name, span := range map[string]record.Span{"before": {To: begun.Add(-9 * time.Hour)}, "after": {From: time.Now().Add(time.Second)}} {
			if c, err := w.record.Chronicle(w.Context(), record.Filter{}, span, 10); err != nil || !c.Whole || len(c.Items) > 0 {
				w.Errorf("the chronicle %s all messages: %+v, %v; want none", name, c, err)
			}
		}
		if _, err := w.record.Chronicle(w.Context(), record.Filter{Controllers: []string{"absent"}}, record.Span{}, 10); !errors.Is(err, record.ErrNotThere) {
			w.Errorf("the chronicle of an absent controller: %v, want ErrNotThere", err)
		}
	})
}

func TestAChronicleShowsWhatIsMissing(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(pod("a"), "x", nil)
		since := time.Now()
		w.Say(events.Delta{Kind: "pods", Op: events.Gap, Body: []byte(`{"reason":"the watcher was away","since":"` + since.Format(time.RFC3339Nano) + `"}`)})
		w.Is(pod("a"), "x", nil)
		c, err := w.record.Chronicle(w.Context(), record.Filter{Namespace: "shop"}, record.Span{}, 10)
		w.Must(err)
		if len(c.Items) != 3 || c.Items[1].Noun != "gap" || c.Items[1].Gap == nil || c.Items[1].Gap.Reason != "the watcher was away" || !c.Items[1].Gap.Since.Equal(since) {
			w.Errorf("the chronicle has %s, want a gap because the watcher was away: %+v", lines(c.Items), c.Items)
		}
	})
}

func TestWhatWasDecidedAboutAnObject(t *testing.T) {
	tell(t, func(w *world) {
		begun := time.Now()
		w.Scaled()
		// Another kind's object has the same name as the Deployment.
		other := events.Ref{Kind: "replicasets.apps", Namespace: "shop", Name: "web"}
		made := w.Delta(other, events.Is, "x", nil)
		w.Done(replicaSets, other, w.Decide(replicaSets, other, "too many Pods", nil), made)
		for ref, want := range map[events.Ref]string{
			web: "turn web, outcome web, turn web, outcome web", webSet: "turn web-1, outcome web-1", other: "turn web, outcome web", pod("a"): "",
		} {
			got, err := w.record.Decided(w.Context(), ref, begun)
			w.Must(err)
			if lines(got) != want {
				w.Errorf("the decisions about %v are %s, want %s", ref, lines(got), want)
			}
		}
		w.Wait(time.Second)
		if got, err := w.record.Decided(w.Context(), web, time.Now()); err != nil || len(got) > 0 {
			w.Errorf("from now on: %s, %v", lines(got), err)
		}
	})
}

func TestNothingIsLostBetweenWhatIsThereAndWhatComes(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(pod("before"), "x", nil)
		ctx, stop := context.WithCancel(w.Context())
		var heard []string
		w.Must(w.record.TailFrom(ctx, record.Filter{}, func() error {
			w.Is(pod("between"), "x", nil)
			return nil
		}, func(h record.Happening) error {
			heard = append(heard, h.Object.Name)
			stop()
			return nil
		}))
		if strings.Join(heard, " ") != "between" {
			w.Errorf("the tail has %v, want what happened between alone", heard)
		}
		broken := errors.New("broken")
		if err := w.record.TailFrom(w.Context(), record.Filter{}, func() error { return broken }, nil); !errors.Is(err, broken) {
			w.Errorf("an error of who begins: %v", err)
		}
		synctest.Wait()
	})
}
