package writer

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestARepeatedFailureIsCounted: the first failure is logged at once, further ones of the same
// cause once a minute, and another cause, or a failure after a success, at once again.
func TestARepeatedFailureIsCounted(t *testing.T) {
	t.Parallel()
	var f repeatedFailures
	web := turnSource{"replicaset-controller", events.Key{Namespace: "shop", Name: "web"}, events.LaneWrite}
	db := turnSource{"replicaset-controller", events.Key{Namespace: "shop", Name: "db"}, events.LaneWrite}
	quota, gone := cause{verb: events.VerbCreate, kind: "pods", code: 403, reason: "Forbidden"}, cause{verb: events.VerbCreate, kind: "pods", code: 404}
	begin := time.Unix(1_700_000_000, 0)
	for i, step := range []struct {
		after     time.Duration
		of        turnSource
		why       cause
		succeeded bool
		times     int
		since     time.Duration
		say       bool
	}{
		{0, web, quota, false, 1, 0, true},
		{5 * time.Millisecond, web, quota, false, 2, 0, false},
		{time.Second, db, quota, false, 1, time.Second, true},
		{30 * time.Second, web, quota, false, 3, 0, false},
		{time.Minute, web, quota, false, 4, 0, true},
		{61 * time.Second, web, quota, false, 5, 0, false},
		{62 * time.Second, web, gone, false, 1, 62 * time.Second, true},
		{63 * time.Second, web, gone, true, 0, 0, false},
		{64 * time.Second, web, gone, false, 1, 64 * time.Second, true},
	} {
		if step.succeeded {
			f.forget(step.of)
			continue
		}
		times, since, say := f.count(step.of, step.why, begin.Add(step.after))
		if times != step.times || !since.Equal(begin.Add(step.since)) || say != step.say {
			t.Errorf("step %d: %d times since %v, logged: %v; want %+v", i, times, since.Sub(begin), say, step)
		}
	}
	f.count(web, quota, begin.Add(time.Hour+forgottenAfter))
	if len(f.all) != 1 {
		t.Errorf("failures of a key that is not tried any more are kept: %v", f.all)
	}
}

// TestAFailureIsForgotten: a failure is forgotten after twice the longest back-off without a
// repetition, which is later than its next retry.
func TestAFailureIsForgotten(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]int{2000 * time.Second: 3, 2000*time.Second + 1: 1} {
		var f repeatedFailures
		begin := time.Unix(1_700_000_000, 0)
		f.count(turnSource{controller: "a"}, cause{}, begin.Add(-time.Hour))
		f.count(turnSource{controller: "a"}, cause{}, begin)
		f.count(turnSource{controller: "b"}, cause{}, begin.Add(after))
		if times, _, _ := f.count(turnSource{controller: "a"}, cause{}, begin.Add(after)); times != want {
			t.Errorf("%v after the second failure the next one is number %d, want %d", after, times, want)
		}
	}
}

// TestWhatIsRemarked: a failure is logged with its count, unless the turn was only stale; every
// turn is logged at that log level.
func TestWhatIsRemarked(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	now := testingclock.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	w := anExecutor(t)
	w.config.Clock = now
	leveled := func(level slog.Level) {
		w.config.Log = slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: level}))
	}
	turn := events.Turn{Controller: "rs", Key: events.Key{Namespace: "ns", Name: "web"}, Lane: events.LaneWrite, Commands: []events.Command{{Verb: events.VerbDelete}}}
	result := func(status events.Status, reason string) []events.Result {
		return []events.Result{{Status: status, Reason: reason}}
	}
	for i, step := range []struct {
		level   slog.Level
		after   time.Duration
		results []events.Result
		failed  string // the attributes of the failure's line; "-": no line
		every   string // the same for the line of every turn
	}{
		{-3, 0, result(events.Applied, ""), "-", `"failed":false`},
		{-3, 0, result(events.Refused, "Forbidden"), `"verb":"delete"`, "-"},
		{-3, time.Second, result(events.Refused, "Forbidden"), "-", `"failed":true`},
		{-3, time.Minute, result(events.Refused, "Forbidden"), `"times":3,"since":"`, "-"},
		{-3, 0, result(events.Conflict, "Conflict"), "-", `"late":true`},
		{-3, 0, result(events.Refused, "Stale"), "-", `"late":true`},
		{-3, 0, result(events.Applied, ""), "-", `"late":false`},
		{-3, 0, result(events.Refused, "Forbidden"), `"attempt":0`, "-"},
		{-2, 0, result(events.Applied, ""), "-", "-"},
	} {
		leveled(step.level)
		now.SetTime(now.Now().Add(step.after))
		text.Reset()
		w.logResult(events.Message{Subject: subject.Turn("rs", turn.Lane, turn.Key)}, turn, step.results)
		for message, want := range map[string]string{"a turn did not succeed": step.failed, "carried out a turn": step.every} {
			said := strings.Contains(text.String(), message)
			if said != (want != "-") || said && !strings.Contains(text.String(), want) {
				t.Errorf("step %d: the log is %s, want a line %q with %s", i, text.String(), message, want)
			}
		}
		if strings.Contains(text.String(), `"times":1,`) {
			t.Errorf("step %d: a first failure has been counted: %s", i, text.String())
		}
	}
}
