package stream

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

func TestPlaceOf(t *testing.T) {
	want := deliveryPosition{attempt: 2, sequence: 1234567890123, delivery: 45, time: time.Unix(0, 1700000000123456789), pending: 7}
	for _, reply := range []string{
		"$JS.ACK.EV_pods.replicaset-controller.2.1234567890123.45.1700000000123456789.7",
		"$JS.ACK.domain.hash.EV_pods.replicaset-controller.2.1234567890123.45.1700000000123456789.7",
		"$JS.ACK._.hash.EV_pods.replicaset-controller.2.1234567890123.45.1700000000123456789.7.random",
	} {
		if got, err := deliveryPositionOf(reply); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", reply, got, err, want)
		}
		least := math.Inf(1) // others of this process may allocate meanwhile
		for range 5 {
			least = min(least, testing.AllocsPerRun(10, func() { _, _ = deliveryPositionOf(reply) }))
		}
		if least > 0 {
			t.Errorf("%s: %v allocations", reply, least)
		}
	}
	for _, reply := range []string{"", "_INBOX.abc", "$JS.ACK.s.c.1.2.3", "$JS.ACK.s.c.1.x.3.4.5", "$JS.ACK.s.c.1..3.4.5", "$JS.ACK.s.c.1.:.3.4.5", "$JS.ACK.s.c.1./.3.4.5", "$JS.ACK.s.c.1.2.3.4."} {
		if got, err := deliveryPositionOf(reply); err == nil {
			t.Errorf("%q is taken for %+v", reply, got)
		}
	}
}

func TestMomentIsNeverEarly(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{
		{}, time.Unix(1700000000, 1), time.Unix(1700000000, 999999999), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		got, err := time.Parse(time.RFC3339, formatTime(at))
		if err != nil {
			t.Errorf("%v is written as %s, which the server cannot read", at, formatTime(at))
		}
		if got.Before(at) && at.Year() < 2261 {
			t.Errorf("%v is written as %v, earlier", at, got)
		}
		if got.UnixNano() < 0 || time.Unix(0, got.UnixNano()).UTC() != got {
			t.Errorf("%v is written as %v, which is not a count of nanoseconds", at, got)
		}
	}
}

// The caller's message does not change when it is stored with more headers: the caller may send
// it again.
func TestWhatIsSentLeavesTheMessage(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]events.Message{"sealed": events.Seal(events.Message{Subject: "s", Data: []byte("x")}), "not sealed": {Subject: "s", Data: []byte("x")}} {
		before := maps.Clone(m.Header)
		out := outgoing(m, "A", "1", "B", "2")
		if !maps.EqualFunc(m.Header, before, slices.Equal) {
			t.Errorf("%s: the message has become %v", name, m.Header)
		}
		if out.Subject != "s" || string(out.Data) != "x" || out.Header.Get("A") != "1" || out.Header.Get("B") != "2" || !(events.Message{Header: out.Header}).Sealed() {
			t.Errorf("%s: it is sent as %+v", name, out)
		}
	}
}
