package watcher

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// A report that cannot be stored is sent later, and again every twenty seconds, with the replica's
// name.
func TestWhatCannotBeReportedIsReportedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		service, _ := idle(t, b)
		began := time.Now()
		for _, kind := range []kinds.Kind{kinds.Pods.Kind, kinds.Nodes.Kind, kinds.Jobs.Kind} {
			watch := &kept{kind: kind.Name}
			if kind.Name != "jobs.batch" {
				watch.note(away)
			}
			service.kinds[kind.Name] = &running{reflector: watch}
		}
		time.AfterFunc(37*time.Second, func() { // virtual
			if err := b.EnsureController(t.Context(), "any"); err != nil {
				t.Error(err)
			}
		})
		ctx, log := watchertest.Logged(t)
		ctx, cancel := context.WithTimeout(ctx, 82*time.Second)
		defer cancel()
		service.reportUnwatched(ctx)
		var at []time.Duration
		state := watchertest.Standing(t, b, subject.StatusStream)
		for sequence := state.First; sequence <= state.Last; sequence++ {
			m, _, err := b.At(t.Context(), subject.StatusStream, sequence)
			if err != nil {
				t.Fatal(err)
			}
			r, err := report.DecodeReport(m)
			if err != nil || len(r.Unwatched) != 2 || r.Unwatched[0].Kind != "nodes" || r.Unwatched[1].Kind != "pods" || r.Replica != "one" {
				t.Errorf("the report is %+v, %v; want nodes and pods, of one", r, err)
			}
			at = append(at, m.Time.Sub(began))
		}
		watchertest.InTime(t, "it reports", at, 40*time.Second, time.Minute, 80*time.Second)
		if log() == "" {
			t.Error("that it cannot report is not told")
		}
	})
}

// The watcher retries once a second to listen on a topic.
func TestWhatCannotBeHeardIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bustest.Wrap(memory.New(memory.Options{})).Fail(bustest.Listen, errors.New("closed"))
		s := &Service{config: Config{Bus: c}, kinds: map[kinds.Name]*running{}}
		for topic, listen := range map[string]func(context.Context){
			report.DamageTopic: s.listen, watchedTopic: s.answerGuards,
		} {
			logging, log := watchertest.Logged(t)
			ctx, cancel := context.WithCancel(logging)
			time.AfterFunc(4500*time.Millisecond, cancel) // virtual
			listen(ctx)
			if got := c.Count(bustest.Listen, topic); got != 5 || strings.Count(log(), "Cannot subscribe") != 5 {
				t.Errorf("%s is tried %d times in 4.5 s, and it tells\n%s", topic, got, log())
			}
		}
	})
}

// TestMadeUpDamageIsBounded: the watcher records the reason of any process's damage report, cut
// short. A message that is too long is not a report.
func TestMadeUpDamageIsBounded(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	start(t, s, b, "one")
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 2 })
	say := func(reason string) {
		data, err := json.Marshal(report.Damage{Kind: kinds.Pods.Name, Hole: events.Hole{Reason: reason}, End: 2})
		if err == nil {
			err = b.Broadcast(report.DamageTopic, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for time.Since(began) < 2*checkEvery {
		say(strings.Repeat("no report ", 100_000))
		time.Sleep(checkEvery / 10)
	}
	if got := len(watchertest.LogOf(t, b)); got != 2 {
		t.Fatalf("a report of a megabyte has been looked into: %d messages", got)
	}
	watchertest.Until(t, func() bool {
		say(strings.Repeat("long ", 500))
		return len(watchertest.LogOf(t, b)) >= 4
	})
	watchertest.Until(t, func() bool { log := watchertest.LogOf(t, b); return log[len(log)-2].Op == events.Gap })
	log := watchertest.LogOf(t, b)
	if got := watchertest.Hole(t, log[len(log)-2]).Reason; len(got) > 600 {
		t.Errorf("the gap has a reason of %d bytes", len(got))
	}
}
