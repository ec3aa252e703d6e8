package writer

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// TestARepeatedFailureIsCounted: the first one is logged at once, further ones of the same
// cause once a minute, and another cause, or one after a success, at once again.
func TestARepeatedFailureIsCounted(t *testing.T) {
	t.Parallel()
	var f failing
	web := turnsOf{"replicaset-controller", events.Key{Namespace: "shop", Name: "web"}, events.Act}
	db := turnsOf{"replicaset-controller", events.Key{Namespace: "shop", Name: "db"}, events.Act}
	quota, gone := cause{verb: events.VerbCreate, kind: "pods", code: 403, reason: "Forbidden"}, cause{verb: events.VerbCreate, kind: "pods", code: 404}
	begin := time.Unix(1_700_000_000, 0)
	for i, step := range []struct {
		after     time.Duration
		of        turnsOf
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
			f.succeeded(step.of)
			continue
		}
		times, since, say := f.failed(step.of, step.why, begin.Add(step.after))
		if times != step.times || !since.Equal(begin.Add(step.since)) || say != step.say {
			t.Errorf("step %d: %d times since %v, logged: %v; want %+v", i, times, since.Sub(begin), say, step)
		}
	}
	f.failed(web, quota, begin.Add(time.Hour+forgottenAfter))
	if len(f.all) != 1 {
		t.Errorf("what is not tried any more is remembered: %v", f.all)
	}
}
