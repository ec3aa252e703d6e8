package publish

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

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
		out := Outgoing(m, "A", "1", "B", "2")
		if !maps.EqualFunc(m.Header, before, slices.Equal) {
			t.Errorf("%s: publishing changes the headers of the message to %v", name, m.Header)
		}
		if out.Subject != "s" || string(out.Data) != "x" || out.Header.Get("A") != "1" || out.Header.Get("B") != "2" || !(events.Message{Header: out.Header}).Sealed() {
			t.Errorf("%s: the published message is %+v, want it sealed with its subject, headers and body", name, out)
		}
	}
}

// A time to live is written in whole seconds, never fewer, and at least one.
func TestSecondsAreRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "1s", -time.Hour: "1s", 1: "1s", time.Second: "1s", time.Second + 1: "2s", 90 * time.Second: "90s", wakeAge: "604800s"} {
		if got := seconds(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}
