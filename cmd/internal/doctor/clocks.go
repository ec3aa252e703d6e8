package doctor

import (
	"time"

	"github.com/millrace/millrace/pkg/events/stream/audit"
)

// mostApart is how far clocks may differ without a warning. No guarantee depends on the clocks
// (docs/reliability.md), but services wait for times in objects by their own clock, and
// certificates and tokens are valid by it.
const mostApart = 2 * time.Second

// ServerClock checks the API server's clock.
func ServerClock(t audit.ClockReading) Finding {
	if t.At.IsZero() {
		return found(CheckClockServer, NotChecked, "the API server's answers have no Date header")
	}
	return clock(CheckClockServer, "the API server", t.Offset(), t.Answered.Sub(t.Asked))
}

// BusClock checks the clock of the bus.
func BusClock(t audit.ClockReading) Finding {
	if t.At.IsZero() {
		return found(CheckClockBus, NotChecked, "the bus tells the time with its streams, and there are none as yet")
	}
	return clock(CheckClockBus, "the bus", t.Offset(), t.Answered.Sub(t.Asked))
}

func clock(check, of string, apart, took time.Duration) Finding {
	way := "ahead of"
	if apart < 0 {
		way, apart = "behind", -apart
	}
	switch {
	case apart > mostApart:
		return found(check, Warning, "the clock of %s is %v %s this machine's", of, apart.Round(time.Millisecond), way).
			so("synchronise the clocks of both (NTP)")
	default:
		return found(check, OK, "the clock of %s agrees with this machine's, as far as an answer that took %v tells", of, took.Round(time.Millisecond))
	}
}
