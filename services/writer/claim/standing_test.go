package claim

import (
	"testing"
	"testing/synctest"
	"time"
)

// A writer whose beats do not come back in time, because it was stopped or is cut
// off from the bus, must not go on with what it had in hand before it knows that
// nobody else has it, even after it hears itself again.
func TestALapseShakesTheGrip(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(party)
		want    Standing
	}{
		"beats come back in time":      {func(h party) { time.Sleep(Lapse - Interval - time.Millisecond); listen(h, 0); listen(h, Lapse/2) }, Held},
		"a Interval is late":           {func(party) { time.Sleep(Lapse) }, Uncertain},
		"a Interval leads nowhere":     {func(h party) { time.Sleep(Lapse / 2); h.beat(); time.Sleep(Lapse / 2) }, Uncertain},
		"a Interval was on its way":    {func(h party) { listen(h, Lapse) }, Uncertain},
		"it has hardly listened again": {func(h party) { time.Sleep(Lapse); listen(h, 0); listen(h, Interval) }, Uncertain},
		"it hears itself again":        {again, Free},
		"it goes on":                   {func(h party) { again(h); h.regain(held) }, Held},
		"it has another lapse":         {func(h party) { again(h); time.Sleep(Lapse); h.regain(held) }, Uncertain},
		"the second Lapse is past":     {func(h party) { again(h); h.regain(held); time.Sleep(Lapse); listen(h, 0) }, Uncertain},
		"it was stopped for long":      {func(h party) { time.Sleep(Doubt); again(h) }, Lost},
		"it lapses all the time": {func(h party) {
			for range 8 {
				time.Sleep(Doubt / 8)
				listen(h, 0)
			}
		}, Lost},
		"nothing is heard any more":          {func(party) { time.Sleep(Doubt) }, Lost},
		"somebody else has it":               {func(h party) { time.Sleep(Lapse); hears(h, 1, held.Sequence); again(h) }, Lost},
		"somebody else had it":               {func(h party) { time.Sleep(Lapse); hears(h, 1, held.Sequence); hears(h, 2); again(h) }, Lost},
		"somebody else has something else":   {func(h party) { time.Sleep(Lapse); hears(h, 1, 8); again(h) }, Free},
		"somebody else may have said so":     {func(h party) { hears(h, 1); time.Sleep(Lapse); hears(h, 3); again(h) }, Lost},
		"somebody unknown may have said so":  {func(h party) { time.Sleep(Lapse); hears(h, 2); again(h) }, Lost},
		"somebody slow has missed nothing":   {func(h party) { hears(h, 1); time.Sleep(2 * Lapse); h.beat(); hears(h, 2); again(h) }, Free},
		"anybody may have said so":           {func(h party) { time.Sleep(Lapse); h.missed(); again(h) }, Lost},
		"it claims what it had, and has it":  {func(h party) { time.Sleep(Lapse); h.missed(); again(h); h.claim(held) }, Held},
		"somebody else has it, and no lapse": {func(h party) { hears(h, 1, held.Sequence) }, Held},
		"it was answered":                    {func(h party) { h.Release(held) }, Lost},
		"it was taken after the lapse": {func(h party) {
			time.Sleep(Lapse)
			listen(h, 0)
			h.Release(held)
			h.take(held, true)
		}, Held},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := holding()
				c.happens(h)
				if got := h.standing(held); got != c.want {
					t.Errorf("the grip is %d, want %d", got, c.want)
				}
			})
		})
	}
}

// again is a hand that has had a Lapse and has listened since.
func again(h party) {
	time.Sleep(Lapse)
	for range 4 {
		listen(h, Interval)
	}
}
