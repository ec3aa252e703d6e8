package standing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Running is what the reconcilers report about their controllers.
type Running struct {
	// Known is false when there is no information: the record is a file, or the reconcilers do
	// not report.
	Known bool
	// Replicas is how many replicas of the reconcilers have reported within
	// [report.Age]; 0: none runs.
	Replicas int
	// Since is when the newest report was stored.
	Since time.Time
	// Stalled are the controllers that have work and decide nothing, sorted.
	Stalled []report.Stall
	// Unwatched are the kinds that watchers say they cannot watch, sorted.
	Unwatched []report.Unwatched

	controllers map[string]bool
}

// Stall is why a controller decides nothing: it is stalled, or no replica runs it. ok is false
// otherwise.
func (r *Running) Stall(controller string) (s report.Stall, ok bool) {
	if r.Known && !r.controllers[controller] {
		return report.Stall{Controller: controller, Condition: report.NotRunning, Since: r.Since}, true
	}
	at := slices.IndexFunc(r.Stalled, func(s report.Stall) bool { return s.Controller == controller })
	if at < 0 {
		return s, false
	}
	return r.Stalled[at], true
}

// Running reads the reports of the reconcilers and watchers. If two replicas report a
// controller, as while its work moves, the later report counts.
func (r *Reader) Running(ctx context.Context) (*Running, error) {
	running := &Running{controllers: map[string]bool{}}
	at, err := r.bus.StreamState(ctx, subject.StatusStream)
	switch {
	case errors.Is(err, bus.ErrNoStream):
		return running, nil
	case err != nil:
		return nil, err
	}
	newest := map[string]report.Report{} // by replica
	watchers := map[string]report.Report{}
	var order []string
	err = r.bus.Read(ctx, bus.Passage{Stream: subject.StatusStream}, func(batch []events.Message) error {
		for _, m := range batch {
			said, err := report.DecodeReport(m)
			if err != nil || !at.Now.IsZero() && at.Now.Sub(m.Time) > report.Age {
				continue
			}
			if m.Subject == subject.WatcherStatusSubject {
				watchers[said.Replica] = said
				continue
			}
			order = slices.DeleteFunc(order, func(id string) bool { return id == said.Replica })
			newest[said.Replica], running.Since, order = said, m.Time, append(order, said.Replica)
		}
		return nil
	})
	if err != nil && !errors.Is(err, bus.ErrNoStream) {
		return nil, err
	}
	stalls := map[string]*report.Stall{}
	for _, id := range order { // the later report replaces the earlier
		said := newest[id]
		for _, controller := range said.Controllers {
			running.controllers[controller], stalls[controller] = true, nil
		}
		for _, s := range said.Stalled {
			stalls[s.Controller] = &s
		}
	}
	for _, s := range stalls {
		if s != nil {
			running.Stalled = append(running.Stalled, *s)
		}
	}
	for _, said := range watchers {
		running.Unwatched = append(running.Unwatched, said.Unwatched...)
	}
	slices.SortFunc(running.Unwatched, func(a, b report.Unwatched) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), a.Since.Compare(b.Since))
	})
	slices.SortFunc(running.Stalled, func(a, b report.Stall) int { return strings.Compare(a.Controller, b.Controller) })
	running.Known, running.Replicas = true, len(order)
	return running, nil
}
