package events_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

func TestASightLastsUntilNothingIsHeard(t *testing.T) {
	noon := time.Date(2030, time.January, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	var s events.Sight
	for _, step := range []struct{ heard, since, until int }{
		{0, 0, 0}, {10, 0, 10}, {25, 0, 25}, {20, 0, 25}, {41, 41, 41}, {42, 41, 42}, {200, 200, 200},
	} {
		if s = s.Heard(at(step.heard)); s != (events.Sight{Since: at(step.since), Until: at(step.until)}) {
			t.Errorf("after something was heard at %ds, the sight is %v; want %ds to %ds", step.heard, s, step.since, step.until)
		}
	}
}
