package standing

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

func TestWhatAStreamWillComeTo(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	state := func(span time.Duration, bytes uint64, keeps bus.Retention) bus.State {
		return bus.State{First: 1, Last: 10, Messages: 10, Bytes: bytes, Begins: now.Add(-span), Now: now, Keeps: keeps}
	}
	const mega = 1 << 20
	for name, c := range map[string]struct {
		state        bus.State
		perDay, full uint64
		reach        time.Duration
	}{
		"bounded by its age": {state(6*time.Hour, mega, bus.Retention{Age: 48 * time.Hour}), 4 * mega, 8 * mega, 48 * time.Hour},
		"bounded by its size": {state(6*time.Hour, mega, bus.Retention{Age: 48 * time.Hour, Bytes: 2 * mega}),
			4 * mega, 2 * mega, 12 * time.Hour},
		"a size that it never reaches": {state(6*time.Hour, mega, bus.Retention{Age: 48 * time.Hour, Bytes: 9 * mega}),
			4 * mega, 8 * mega, 48 * time.Hour},
		"old enough":     {state(time.Minute, 1440, bus.Retention{Age: time.Hour}), 1440 * 1440, 1440 * 60, time.Hour},
		"too young":      {state(time.Minute-1, mega, bus.Retention{Age: time.Hour}), 0, 0, 0},
		"without bounds": {state(time.Hour, mega, bus.Retention{}), 0, 0, 0},
		"empty so far":   {bus.State{First: 1, Now: now, Keeps: bus.Retention{Age: time.Hour}}, 0, 0, 0},
		"just as full ":  {state(48*time.Hour, 8*mega, bus.Retention{Age: 48 * time.Hour}), 4 * mega, 8 * mega, 48 * time.Hour},
	} {
		var k Stock
		if k.take(c.state); k.PerDay != c.perDay || k.Full != c.full || k.Reach != c.reach {
			t.Errorf("%s: %d a day, %d and %v when full; want %d, %d, %v", name, k.PerDay, k.Full, k.Reach, c.perDay, c.full, c.reach)
		}
	}
}
