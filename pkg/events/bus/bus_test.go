package bus_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// The clocks of the servers that stamp messages may differ by a second: only messages further
// apart are certainly in order.
func TestWhatIsCertainlyBefore(t *testing.T) {
	at := time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]bool{-time.Hour: false, 0: false, time.Second: false, time.Second + 1: true, time.Hour: true} {
		if got := bus.Before(events.Message{Time: at}, events.Message{Time: at.Add(after)}); got != want {
			t.Errorf("before what is stored %v later: %v, want %v", after, got, want)
		}
	}
}

// Replicas of different versions run side by side on servers that know the priorities 0 to 9:
// they must use the same numbers.
func TestReplicasOfAllVersionsGoByTheSameNumbers(t *testing.T) {
	if bus.LastRank != 9 || bus.Lingering != 10*time.Second || bus.Backlog != 1000 {
		t.Errorf("the last rank is %d, a worker counts as asking for %v, and %d messages are no backlog", bus.LastRank, bus.Lingering, bus.Backlog)
	}
}
