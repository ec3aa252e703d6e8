package shell

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// TestALostEndKeepsEnginesShut until a watcher, which the follower asks, has reported the
// objects.
func TestALostEndKeepsEnginesShut(t *testing.T) {
	pod := func(at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod("p", "", int(at)), at)
	}
	known := []events.Message{pod(1), markAt(kinds.Pods.Kind, pod(1).Get(events.HeaderRV), 2), pod(3)}
	f := Follower{
		Cache: cache.New(), Kind: kinds.Pods.Kind, goal: 2, waitTimer: time.NewTimer(time.Hour),
	}
	f.Cache.Follow(f.Kind)
	f.Cache.Fold(f.Kind.Name, known)
	f.Cache.Forget(f.Kind.Name)
	f.Cache.Fold(f.Kind.Name, known[:2])
	if f.open(); f.opened || f.lostEnd.current() == nil || f.lostEnd.damage.End != 2 {
		t.Errorf("without the end of the log the kind is open: %t, and the report is %v; want it shut, and a report", f.opened, f.lostEnd.current())
	}
	f.Cache.Fold(f.Kind.Name, []events.Message{again(known[2], 3), markAt(kinds.Pods.Kind, known[2].Get(events.HeaderRV), 4)})
	if f.open(); !f.opened || f.lostEnd.current() != nil {
		t.Errorf("with everything recorded again the kind is open: %t, and the report is %v; want it open, and none", f.opened, f.lostEnd.current())
	}
}
