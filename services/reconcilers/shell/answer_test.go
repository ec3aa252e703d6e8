package shell

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A change that concerns two keys is answered when both have had their turns.
func TestATicketOfTwoKeysWaitsForBoth(t *testing.T) {
	o := open(t, Settings{})
	db := events.Key{Namespace: "default", Name: "db"}
	at := epoch.Add(time.Hour)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "wakes"))
	o.desk.Scheduled(web, at, nil)
	want(t, "a pod of one", o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 2)), "done")
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("db", 3, 0, 0, "wakes"))
	both := o.change(kinds.Pods.Kind, events.Is, aPod("p", "db", 4))
	if len(o.wakes) != 2 || o.wakes[1].Key != db {
		t.Fatalf("the wakes are %+v", o.wakes)
	}
	want(t, "after the turn of the former owner", both, "")
	o.desk.Scheduled(db, at, nil)
	want(t, "after both turns", both, "done")
}

// A ticket is let in by its own message, not by the one before it.
func TestATicketWaitsForItsOwnMessage(t *testing.T) {
	o := open(t, Settings{})
	s := &slip{}
	o.desk.Ticket(events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}, 2, events.Trace{}, s)
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("db", 1, 0, 0, ""))
	o.run()
	want(t, "one message too early", s, "")
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, ""))
	o.run()
	want(t, "at its message", s, "done")
}

// The last wake that is set is the one that fires, so a later one must not replace
// an earlier one that is still to come.
func TestALaterWakeReplacesNoEarlierOne(t *testing.T) {
	o := open(t, Settings{})
	begun := func(version int, at time.Time) *slip {
		set := aSet("web", version, 0, 0, "wakes")
		set.CreationTimestamp = metav1.NewTime(at)
		return o.change(kinds.ReplicaSets.Kind, events.Is, set)
	}
	begun(1, epoch)
	o.desk.Scheduled(web, epoch.Add(time.Hour), nil)
	want(t, "a later wake", begun(2, epoch.Add(time.Hour)), "done")
	if len(o.wakes) != 1 {
		t.Fatalf("the later wake was set: %+v", o.wakes)
	}
	begun(3, epoch.Add(-time.Minute))
	if len(o.wakes) != 2 || !o.wakes[1].At.Equal(epoch.Add(59*time.Minute)) {
		t.Errorf("the earlier wake was not set: %+v", o.wakes)
	}
}
