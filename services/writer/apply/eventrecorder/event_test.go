package eventrecorder

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
)

// An Event's name derives from its object and its ID; it is in the object's namespace or the
// default one.
func TestTheEventOfARecord(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	recorder := New(Config{Clock: testingclock.NewFakePassiveClock(now)})
	story := Event{Source: "s", ID: "a"}
	story.Event.Notice = events.Notice{About: corev1.ObjectReference{Kind: "Node", Name: "n"}, Type: "Normal", Reason: "R", Message: "m"}
	e := recorder.event(story)
	if e.Namespace != "default" || e.Count != 1 || !e.FirstTimestamp.Time.Equal(now) || !e.LastTimestamp.Time.Equal(now) || e.Source.Component != "s" || e.ReportingController != "s" || e.Reason != "R" {
		t.Errorf("the Event about a node is %+v, want it in the namespace default, once, now, by s", e)
	}
	same, other := recorder.event(story), story
	other.ID = "b"
	other.About.Namespace = "ns"
	if o := recorder.event(other); same.Name != e.Name || o.Name == e.Name || o.Namespace != "ns" {
		t.Errorf("the names are %s, %s and %s", e.Name, same.Name, o.Name)
	}
}
