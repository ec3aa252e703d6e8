package delivery

import (
	"math"
	"testing"
	"time"
)

func TestPlaceOf(t *testing.T) {
	want := Position{Attempt: 2, Sequence: 1234567890123, Delivery: 45, Time: time.Unix(0, 1700000000123456789), Pending: 7}
	for _, reply := range []string{
		"$JS.ACK.EV_pods.replicaset-controller.2.1234567890123.45.1700000000123456789.7",
		"$JS.ACK.domain.hash.EV_pods.replicaset-controller.2.1234567890123.45.1700000000123456789.7",
		"$JS.ACK._.hash.EV_pods.replicaset-controller.2.1234567890123.45.1700000000123456789.7.random",
	} {
		if got, err := PositionOf(reply); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", reply, got, err, want)
		}
		least := math.Inf(1) // others of this process may allocate meanwhile
		for range 5 {
			least = min(least, testing.AllocsPerRun(10, func() { _, _ = PositionOf(reply) }))
		}
		if least > 0 {
			t.Errorf("%s: %v allocations", reply, least)
		}
	}
	for _, reply := range []string{"", "_INBOX.abc", "$JS.ACK.s.c.1.2.3", "$JS.ACK.s.c.1.x.3.4.5", "$JS.ACK.s.c.1..3.4.5", "$JS.ACK.s.c.1.:.3.4.5", "$JS.ACK.s.c.1./.3.4.5", "$JS.ACK.s.c.1.2.3.4."} {
		if got, err := PositionOf(reply); err == nil {
			t.Errorf("%q is taken for %+v", reply, got)
		}
	}
}
