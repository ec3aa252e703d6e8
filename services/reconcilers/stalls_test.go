package reconcilers_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/engine"
)

// stalledBy returns the metric's condition and seconds of the only controller.
func stalledBy(t *testing.T, s *reconcilers.Service) (condition string, seconds float64) {
	t.Helper()
	for _, one := range metrictest.Collect(t, s.Collectors()...).Of("millrace_reconcilers_stalled_seconds") {
		condition, seconds = one.Label("condition"), one.Value
	}
	return condition, seconds
}

// reported returns the newest report on the bus.
func reported(t *testing.T, w *world) (r report.Report) {
	t.Helper()
	m, there, err := w.bus.Last(t.Context(), subject.StatusStream, subject.StatusSubject)
	if err == nil && there {
		r, err = report.DecodeReport(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// whatStalls checks that a stalled controller is reported in four places after 30 seconds,
// and in none after mend.
func whatStalls(t *testing.T, condition report.Condition, begin func(context.Context, *world), mend func(context.Context, *world)) {
	synctest.Test(t, func(t *testing.T) {
		text := reconcilers.Logged(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w, _ := inMemoryWorld(ctx, t)
		begin(ctx, w)
		s := w.start(ctx)
		defer s.end()
		note := s.Notes()["stalled-copies"]
		said := func() (places int) {
			by, seconds := stalledBy(t, s.Service)
			klog.Flush()
			for _, says := range []bool{
				note() != nil && strings.Contains(note().Error(), condition.Reason()),
				by == string(condition) && seconds >= report.StallAfter.Seconds(),
				strings.Contains(text.String(), `"A controller is stalled"`) && strings.Contains(text.String(), `condition="`+string(condition)+`"`),
				len(reported(t, w).Stalled) == 1 && reported(t, w).Stalled[0].Condition == condition,
			} {
				if says {
					places++
				}
			}
			return places
		}
		time.Sleep(report.StallAfter - time.Second) // virtual
		synctest.Wait()
		if got := said(); got > 0 {
			t.Errorf("the stall is reported in %d places before 30 s are over", got)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := said(); got != 4 {
			t.Errorf("the stall is reported in %d places, want 4: %v, %+v", got, note(), reported(t, w))
		}
		if mend == nil {
			return
		}
		mend(ctx, w)
		time.Sleep(report.Every)
		synctest.Wait()
		if by, seconds := stalledBy(t, s.Service); note() != nil || by != "none" || seconds != 0 || len(reported(t, w).Stalled) > 0 {
			t.Errorf("when all is well the stall is reported as %v, %s, %+v", note(), by, reported(t, w))
		}
	})
}

// TestKeysThatWaitAreCountedAndLogged: a key without a writer is counted after ten seconds, and
// logged once however long it waits. It no longer counts when a writer has come.
func TestKeysThatWaitAreCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := reconcilers.Logged(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w, _ := inMemoryWorld(ctx, t)
		w.say(ctx, kinds.ConfigMaps.Kind, "first", "c")
		s := w.start(ctx)
		defer s.end()
		time.Sleep(engine.LongWait - time.Second) // virtual
		synctest.Wait()
		if n := waiting(t, s.Service, report.NoOutcome); n != 0 {
			t.Errorf("%v keys are said to wait before ten seconds are over", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		klog.Flush()
		if n, lines := waiting(t, s.Service, report.NoOutcome), strings.Count(text.String(), `"Keys wait"`); n != 1 || lines != 1 || !strings.Contains(text.String(), `condition="NoOutcome"`) {
			t.Errorf("%v keys wait by the metric, in %d log lines; want 1 in 1: %s", n, lines, text)
		}
		if r := reported(t, w); len(r.Controllers) != 1 || r.Controllers[0] != "copies" {
			t.Errorf("the report is of %v, want copies", r.Controllers)
		}
		w.writing(ctx, t, 0)
		time.Sleep(report.Every)
		synctest.Wait()
		if n := waiting(t, s.Service, report.NoOutcome); n != 0 {
			t.Errorf("%v keys are said to wait although a writer has come", n)
		}
		state, ok := s.Key(ctx, "copies", events.Key{Name: "first"})
		if _, other := s.Key(ctx, "other", events.Key{}); !ok || other || !state.Known || state.Waits != "" {
			t.Errorf("the key stands at %+v (%t), and that of a controller that does not run is told: %t", state, ok, other)
		}
	})
}

// waiting returns the metric's number of keys that wait under a condition.
func waiting(t *testing.T, s *reconcilers.Service, under report.Condition) float64 {
	t.Helper()
	return metrictest.Collect(t, s.Collectors()...).Sum("millrace_reconcilers_waiting_keys", "condition="+string(under))
}

func TestAControllerWhoseTurnsHaveNoWriterIsNamed(t *testing.T) {
	whatStalls(t, report.NoOutcome, func(ctx context.Context, w *world) {
		w.say(ctx, kinds.ConfigMaps.Kind, "first", "c")
	}, func(ctx context.Context, w *world) { w.writing(ctx, w.t, 0) })
}

// The watcher may not list a kind: it creates the kind's streams, and never marks them.
func TestAControllerThatWaitsForAKindIsNamed(t *testing.T) {
	whatStalls(t, report.NotRead, func(ctx context.Context, w *world) {
		if err := w.bus.DeleteKind(ctx, kinds.ServiceAccounts.Name); err != nil {
			w.t.Fatal(err)
		}
		w.open(ctx, kinds.ServiceAccounts.Kind)
	}, func(ctx context.Context, w *world) { w.mark(ctx, kinds.ServiceAccounts.Kind) })
}
