package claim

import (
	"testing"
	"testing/synctest"
	"time"
)

// A writer whose heartbeats do not come back in time, because it was stopped or is cut off from
// the bus, must not go on with its turns in flight before it knows that no other writer has them,
// even after it hears itself again.
func TestAnExpiryShakesTheClaim(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(party)
		want    Status
	}{
		"heartbeats come back in time": {func(h party) { time.Sleep(Expiry - Interval - time.Millisecond); listen(h, 0); listen(h, Expiry/2) }, Held},
		"a Interval is late":           {func(party) { time.Sleep(Expiry) }, Uncertain},
		"a Interval leads nowhere":     {func(h party) { time.Sleep(Expiry / 2); h.heartbeat(); time.Sleep(Expiry / 2) }, Uncertain},
		"a Interval was on its way":    {func(h party) { listen(h, Expiry) }, Uncertain},
		"it has hardly listened again": {func(h party) { time.Sleep(Expiry); listen(h, 0); listen(h, Interval) }, Uncertain},
		"it hears itself again":        {again, Free},
		"it goes on":                   {func(h party) { again(h); h.regain(held) }, Held},
		"it has another expiry":        {func(h party) { again(h); time.Sleep(Expiry); h.regain(held) }, Uncertain},
		"the second Expiry is past":    {func(h party) { again(h); h.regain(held); time.Sleep(Expiry); listen(h, 0) }, Uncertain},
		"it was stopped for long":      {func(h party) { time.Sleep(UncertainFor); again(h) }, Lost},
		"it expiries all the time": {func(h party) {
			for range 8 {
				time.Sleep(UncertainFor / 8)
				listen(h, 0)
			}
		}, Lost},
		"nothing is heard any more":            {func(party) { time.Sleep(UncertainFor) }, Lost},
		"another writer has it":                {func(h party) { time.Sleep(Expiry); hears(h, 1, held.Sequence); again(h) }, Lost},
		"another writer had it":                {func(h party) { time.Sleep(Expiry); hears(h, 1, held.Sequence); hears(h, 2); again(h) }, Lost},
		"another writer has another turn":      {func(h party) { time.Sleep(Expiry); hears(h, 1, 8); again(h) }, Free},
		"another writer may have said so":      {func(h party) { hears(h, 1); time.Sleep(Expiry); hears(h, 3); again(h) }, Lost},
		"an unknown writer may have said so":   {func(h party) { time.Sleep(Expiry); hears(h, 2); again(h) }, Lost},
		"a slow writer has missed nothing":     {func(h party) { hears(h, 1); time.Sleep(2 * Expiry); h.heartbeat(); hears(h, 2); again(h) }, Free},
		"any writer may have said so":          {func(h party) { time.Sleep(Expiry); h.missed(); again(h) }, Lost},
		"it claims what it had, and has it":    {func(h party) { time.Sleep(Expiry); h.missed(); again(h); h.claim(held) }, Held},
		"another writer has it, and no expiry": {func(h party) { hears(h, 1, held.Sequence) }, Held},
		"it was answered":                      {func(h party) { h.Release(held) }, Lost},
		"it was taken after the expiry": {func(h party) {
			time.Sleep(Expiry)
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
					t.Errorf("the claim is %d, want %d", got, c.want)
				}
			})
		})
	}
}

// again lets a writer have an expiry and listen afterwards.
func again(h party) {
	time.Sleep(Expiry)
	for range 4 {
		listen(h, Interval)
	}
}
