package standing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
)

// stalled are the lags that describe stalled controllers.
func (w *world) stalled() string {
	w.Helper()
	lags, err := w.standing.Lags(w.Context())
	w.Must(err)
	var lines []string
	for _, l := range slices.DeleteFunc(lags, func(l standing.Lag) bool { return l.Stalled == nil }) {
		lines = append(lines, fmt.Sprintf("%s: %v", l.Consumer, l.Stalled))
	}
	return strings.Join(lines, "\n")
}

// The newest report on a controller counts, and old reports do not; no replica runs a controller
// that no report mentions.
func TestStalledControllersAreInTheLags(t *testing.T) {
	tell(t, func(w *world) {
		expect := func(when, want, standing string) {
			w.Helper()
			if got := w.stalled(); got != want {
				w.Errorf("%s the lags say\n%s, want\n%s", when, got, want)
			}
			s, err := w.standing.Standing(w.Context(), kinds.Pods.Kind, pod("a"), replicaSets)
			w.Must(err)
			if got := fmt.Sprint(s.Stalled); s.Stalled == nil && standing != "" || s.Stalled != nil && got != standing {
				w.Errorf("%s the controller stands so: %s, want %q", when, got, standing)
			}
		}
		w.Is(pod("a"), "x", nil)
		none := report.NotRunning.Reason()
		expect("before there is a report", "reconcilers: "+none, none)
		both := []string{deployments, replicaSets}
		stall := report.Stall{Controller: replicaSets, Condition: report.NotRead, Detail: "pods", Since: time.Now()}
		w.Report(report.Report{Replica: "a", Controllers: both, Stalled: []report.Stall{stall}})
		expect("when one is stalled", replicaSets+": "+stall.String(), stall.String())
		w.Report(report.Report{Replica: "b", Controllers: []string{replicaSets}})
		expect("when it falls to a replica that works", "", "")
		w.Report(report.Report{Replica: "a", Controllers: []string{deployments}})
		w.Report(report.Report{Replica: "b"})
		expect("when it falls to none", "", none)
		time.Sleep(report.Age / 2) // virtual
		m, err := report.Report{Replica: "w", Unwatched: []report.Unwatched{{Kind: "pods", Reason: "forbidden", Since: time.Now()}}}.Encode()
		w.Must(err)
		m.Subject = subject.WatcherStatusSubject
		_, err = w.Bus.Put(w.Context(), m, "w/1")
		w.Must(err)
		lags, err := w.standing.Lags(w.Context())
		w.Must(err)
		s, err := w.standing.Standing(w.Context(), kinds.Pods.Kind, pod("a"), replicaSets)
		w.Must(err)
		if at := slices.IndexFunc(lags, func(l standing.Lag) bool { return l.Unwatched != nil }); at < 0 || lags[at].Unwatched.Reason != "forbidden" || s.Unwatched == nil {
			w.Errorf("a kind that cannot be watched is entry %d of the lags, and in the standing %+v", at, s)
		}
		time.Sleep(report.Age) // virtual
		expect("when the reports are old", "reconcilers: "+none, none)
	})
}

// A report is bounded, whatever the bus's error says.
func TestAReportIsSmall(t *testing.T) {
	long := report.Stall{Controller: "c", Condition: report.BusRefuses, Detail: strings.Repeat("x", 1<<20)}
	m, err := report.Report{Replica: "a", Stalled: []report.Stall{long}}.Encode()
	if err != nil || len(m.Data) > 1000 {
		t.Errorf("a report takes %d bytes (%v), want 1000 at most", len(m.Data), err)
	}
	if r, err := report.DecodeReport(m); err != nil || len(r.Stalled) != 1 || r.Stalled[0].Condition != report.BusRefuses {
		t.Errorf("the report is decoded as %+v: %v", r, err)
	}
}
