package engine

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// heartbeats makes a log in which an object has a new heartbeat at some messages, and is
// changed at the others without one. Each message is a second later than the previous one.
func heartbeats(kind kinds.Kind, made func(heartbeat time.Time) object, beating []bool) (log []events.Message, heard []time.Time, sights []events.Sight) {
	const step = time.Second
	heartbeat, sight := epoch, events.Sight{}
	last := epoch
	for i, heartbeats := range beating {
		at := epoch.Add(time.Duration(i+1) * step)
		if heartbeats {
			heartbeat, last = heartbeat.Add(10*step), at
		}
		if kinds.IsHeartbeat(kind.Name) {
			if sight = sight.Heard(at); i == len(beating)/2 {
				sight = events.Sight{Since: at, Until: at}
			}
		}
		obj := made(heartbeat)
		obj.SetName("n1")
		obj.SetUID("uid-n1")
		obj.SetResourceVersion(fmt.Sprint(100 + i))
		m := delta(kind, events.Is, obj, uint64(i+1))
		m.Header[events.HeaderAt] = []string{at.Format(time.RFC3339Nano)}
		m.Header[events.HeaderSight] = []string{sight.String()}
		log, heard, sights = append(log, m), append(heard, last), append(sights, sight)
	}
	return log, heard, sights
}

func TestWhenAnObjectWasHeard(t *testing.T) {
	for _, c := range []struct {
		kind kinds.Kind
		made func(time.Time) object
	}{
		{kinds.Nodes.Kind, func(heartbeat time.Time) object {
			return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, LastHeartbeatTime: metav1.NewTime(heartbeat)},
			}}}
		}},
		{kinds.Leases.Kind, func(heartbeat time.Time) object {
			return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: heartbeat}}}
		}},
	} {
		log, heard, sights := heartbeats(c.kind, c.made, []bool{true, false, true, false, false, true, false, true})
		m, h := cache.New(), cache.NewHistory(0)
		m.Register(reconcile.Description{Name: "c", Inputs: []reconcile.Input{{Kind: c.kind}}})
		m.Follow(c.kind)
		h.Begin(c.kind, 0, nil, true)
		for i, message := range log {
			m.Fold(c.kind.Name, []events.Message{message})
			h.Fold(c.kind.Name, []cache.Fact{cache.Read(c.kind, message)})
			m.View("c", nil, func(s cache.Snapshot) { hears(t, s, c.kind.Name, i, heard[i], sights[i]) })
		}
		for _, i := range []int{3, 1, 7, 4, 5, 0, 6, 2} {
			sight, err := h.ViewAt(events.Position{c.kind.Name: uint64(i + 1)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			hears(t, sight.Snapshot, c.kind.Name, i, heard[i], sights[i])
		}
	}
}

func hears(t *testing.T, s reconcile.Snapshot, kind kinds.Name, i int, at time.Time, sight events.Sight) {
	t.Helper()
	if got := s.Heard(kind, "", "n1"); !got.Equal(at) {
		t.Errorf("%s: after message %d the last sign of life was at %v, want %v", kind, i+1, got, at)
	}
	if got := s.Sight(kind); !got.Since.Equal(sight.Since) || !got.Until.Equal(sight.Until) {
		t.Errorf("%s: after message %d the sight is %v, want %v", kind, i+1, got, sight)
	}
	if got := s.Heard(kind, "", "n2"); !got.IsZero() {
		t.Errorf("%s: an object that is not there was heard at %v", kind, got)
	}
}
