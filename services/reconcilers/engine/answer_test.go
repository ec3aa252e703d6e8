package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A change that concerns two keys is dealt with when both have had their turns.
func TestAChangeOfTwoKeysWaitsForBoth(t *testing.T) {
	o := open(t, Settings{})
	db := events.Key{Namespace: "default", Name: "db"}
	at := epoch.Add(time.Hour)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "wakes"))
	o.engine.Scheduled(web, at, nil)
	served(t, "a pod of one", o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 2)))
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("db", 3, 0, 0, "wakes"))
	both := o.change(kinds.Pods.Kind, events.Is, aPod("p", "db", 4))
	if len(o.wakes) != 2 || o.wakes[1].Key != db {
		t.Fatalf("the wakes are %+v", o.wakes)
	}
	stillWaits(t, "after the turn of the former owner", both)
	o.engine.Scheduled(db, at, nil)
	served(t, "after both turns", both)
}

// The stream keeps only the last wake of a key, so a later wake must not replace an earlier one
// that is still to come.
func TestALaterWakeReplacesNoEarlierOne(t *testing.T) {
	o := open(t, Settings{})
	begun := func(version int, at time.Time) wish {
		set := aSet("web", version, 0, 0, "wakes")
		set.CreationTimestamp = metav1.NewTime(at)
		return o.change(kinds.ReplicaSets.Kind, events.Is, set)
	}
	begun(1, epoch)
	o.engine.Scheduled(web, epoch.Add(time.Hour), nil)
	served(t, "a later wake", begun(2, epoch.Add(time.Hour)))
	if len(o.wakes) != 1 {
		t.Fatalf("the later wake was set: %+v", o.wakes)
	}
	begun(3, epoch.Add(-time.Minute))
	if len(o.wakes) != 2 || !o.wakes[1].At.Equal(epoch.Add(59*time.Minute)) {
		t.Errorf("the earlier wake was not set: %+v", o.wakes)
	}
}

// A key is parked as soon as the turn with the reason is stored.
func TestParkingThatFailsIsRepeated(t *testing.T) {
	o := open(t, Settings{Attempts: 1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
	away := errors.New("the bus is away")
	parks := func(what string) {
		t.Helper()
		if got := o.takeRecalls(); len(got) != 1 || got[0] != events.LanePark {
			t.Fatalf("%s: recalls are %v", what, got)
		}
	}
	parks("at first")
	o.engine.Recalled(web, events.LanePark, Past{}, away)
	o.pass(time.Second)
	parks("after a recall that failed")
	o.engine.Recalled(web, events.LanePark, Past{}, nil)
	o.take(events.LanePark)
	o.answer(events.LanePark, 0, away)
	if parked := o.engine.Parked(); len(parked) > 0 {
		t.Errorf("before the record is stored these keys are parked: %+v, want none", parked)
	}
	o.pass(time.Second)
	parks("after a record that failed")
	o.engine.Recalled(web, events.LanePark, Past{Sequence: 7}, nil)
	if park := o.take(events.LanePark); park.expect != 7 {
		t.Errorf("stored behind %d, want 7", park.expect)
	}
	o.answer(events.LanePark, 8, nil)
	if parked := o.engine.Parked(); len(parked) != 1 || !strings.Contains(parked[0].Reason, "a set that breaks") {
		t.Errorf("parked are %+v", parked)
	}
}
