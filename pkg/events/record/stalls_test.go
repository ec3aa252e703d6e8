package record_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/subject"
)

// report stores a replica's report.
func (w *world) report(r events.Report) {
	w.Helper()
	m, err := r.Encode()
	w.must(err)
	m.Subject = subject.StatusSubject
	_, err = w.bus.Put(w.Context(), m, fmt.Sprint(r.Replica, time.Now()))
	w.must(err)
	time.Sleep(time.Second) // virtual
}

// stalled are the lags that describe stalled controllers.
func (w *world) stalled() string {
	w.Helper()
	lags, err := w.record.Lags(w.Context())
	w.must(err)
	var lines []string
	for _, l := range slices.DeleteFunc(lags, func(l record.Lag) bool { return l.Stalled == nil }) {
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
			s, err := w.record.Standing(w.Context(), kinds.Pods.Kind, pod("a"), replicaSets)
			w.must(err)
			if got := fmt.Sprint(s.Stalled); s.Stalled == nil && standing != "" || s.Stalled != nil && got != standing {
				w.Errorf("%s the controller stands so: %s, want %q", when, got, standing)
			}
		}
		w.is(pod("a"), "x", nil)
		none := events.NotRunning.Reason()
		expect("before there is a report", "reconcilers: "+none, none)
		both := []string{deployments, replicaSets}
		stall := events.Stall{Controller: replicaSets, Condition: events.NotRead, Detail: "pods", Since: time.Now()}
		w.report(events.Report{Replica: "a", Controllers: both, Stalled: []events.Stall{stall}})
		expect("when one is stalled", replicaSets+": "+stall.String(), stall.String())
		w.report(events.Report{Replica: "b", Controllers: []string{replicaSets}})
		expect("when it falls to a replica that works", "", "")
		w.report(events.Report{Replica: "a", Controllers: []string{deployments}})
		w.report(events.Report{Replica: "b"})
		expect("when it falls to none", "", none)
		time.Sleep(events.ReportAge / 2) // virtual
		m, err := events.Report{Replica: "w", Unwatched: []events.Unwatched{{Kind: "pods", Reason: "forbidden", Since: time.Now()}}}.Encode()
		w.must(err)
		m.Subject = subject.WatcherStatusSubject
		_, err = w.bus.Put(w.Context(), m, "w/1")
		w.must(err)
		lags, err := w.record.Lags(w.Context())
		w.must(err)
		s, err := w.record.Standing(w.Context(), kinds.Pods.Kind, pod("a"), replicaSets)
		w.must(err)
		if at := slices.IndexFunc(lags, func(l record.Lag) bool { return l.Unwatched != nil }); at < 0 || lags[at].Unwatched.Reason != "forbidden" || s.Unwatched == nil {
			w.Errorf("what cannot be watched is in the lags at %d, and in %+v", at, s)
		}
		time.Sleep(events.ReportAge) // virtual
		expect("when the reports are old", "reconcilers: "+none, none)
	})
}

// A report is bounded, whatever the bus's error says.
func TestAReportIsSmall(t *testing.T) {
	long := events.Stall{Controller: "c", Condition: events.BusRefuses, Detail: strings.Repeat("x", 1<<20)}
	m, err := events.Report{Replica: "a", Stalled: []events.Stall{long}}.Encode()
	if err != nil || len(m.Data) > 1000 {
		t.Errorf("a report takes %d bytes: %v", len(m.Data), err)
	}
	if r, err := events.DecodeReport(m); err != nil || len(r.Stalled) != 1 || r.Stalled[0].Condition != events.BusRefuses {
		t.Errorf("it is read as %+v: %v", r, err)
	}
}
