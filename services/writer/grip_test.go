package writer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

var held = place{"rs", 7}

// holding is a hand that has listened for a while and has a turn.
func holding() *hand {
	h := newHand("a", newMetrics())
	for range 3 {
		listen(h, beat)
	}
	h.take(held, nothing{}, true, func() {})
	return h
}

// hears has a hand hear a beat of somebody else.
func hears(h *hand, number uint64, turns ...uint64) {
	h.hear(events.Beat{Writer: "b", Number: number, Turns: map[string][]uint64{held.controller: turns}}.Encode())
}

// A writer whose beats do not come back in time, because it was stopped or is cut
// off from the bus, must not go on with what it had in hand before it knows that
// nobody else has it, even after it hears itself again.
func TestALapseShakesTheGrip(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(*hand)
		want    standing
	}{
		"beats come back in time":      {func(h *hand) { time.Sleep(lapse - beat - time.Millisecond); listen(h, 0); listen(h, lapse/2) }, firm},
		"a beat is late":               {func(*hand) { time.Sleep(lapse) }, vague},
		"a beat leads nowhere":         {func(h *hand) { time.Sleep(lapse / 2); h.beat(); time.Sleep(lapse / 2) }, vague},
		"a beat was on its way":        {func(h *hand) { listen(h, lapse) }, vague},
		"it has hardly listened again": {func(h *hand) { time.Sleep(lapse); listen(h, 0); listen(h, beat) }, vague},
		"it hears itself again":        {again, free},
		"it goes on":                   {func(h *hand) { again(h); h.regain(held) }, firm},
		"it has another lapse":         {func(h *hand) { again(h); time.Sleep(lapse); h.regain(held) }, vague},
		"the second lapse is past":     {func(h *hand) { again(h); h.regain(held); time.Sleep(lapse); listen(h, 0) }, vague},
		"it was stopped for long":      {func(h *hand) { time.Sleep(doubt); again(h) }, gone},
		"it lapses all the time": {func(h *hand) {
			for range 8 {
				time.Sleep(doubt / 8)
				listen(h, 0)
			}
		}, gone},
		"nothing is heard any more":          {func(*hand) { time.Sleep(doubt) }, gone},
		"somebody else has it":               {func(h *hand) { time.Sleep(lapse); hears(h, 1, held.sequence); again(h) }, gone},
		"somebody else had it":               {func(h *hand) { time.Sleep(lapse); hears(h, 1, held.sequence); hears(h, 2); again(h) }, gone},
		"somebody else has something else":   {func(h *hand) { time.Sleep(lapse); hears(h, 1, 8); again(h) }, free},
		"somebody else may have said so":     {func(h *hand) { hears(h, 1); time.Sleep(lapse); hears(h, 3); again(h) }, gone},
		"somebody unknown may have said so":  {func(h *hand) { time.Sleep(lapse); hears(h, 2); again(h) }, gone},
		"somebody slow has missed nothing":   {func(h *hand) { hears(h, 1); time.Sleep(2 * lapse); h.beat(); hears(h, 2); again(h) }, free},
		"anybody may have said so":           {func(h *hand) { time.Sleep(lapse); h.missed(); again(h) }, gone},
		"it claims what it had, and has it":  {func(h *hand) { time.Sleep(lapse); h.missed(); again(h); h.claim(held) }, firm},
		"somebody else has it, and no lapse": {func(h *hand) { hears(h, 1, held.sequence) }, firm},
		"it was answered":                    {func(h *hand) { h.answer(held, func(bus.Delivery) {}) }, gone},
		"it was taken after the lapse": {func(h *hand) {
			time.Sleep(lapse)
			listen(h, 0)
			h.answer(held, func(bus.Delivery) {})
			h.take(held, nothing{}, true, func() {})
		}, firm},
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

// again is a hand that has had a lapse and has listened since.
func again(h *hand) {
	time.Sleep(lapse)
	for range 4 {
		listen(h, beat)
	}
}

// What may have been begun is begun anew only by one who has heard itself say that it
// has it, and nobody else.
func TestAClaimIsAnnounced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others []uint64 // turns of somebody else, said before ours comes back
		cut    bool
		want   bool
	}{
		"nobody is there":        {nil, false, true},
		"somebody else has it":   {[]uint64{held.sequence}, false, false},
		"somebody has another":   {[]uint64{8}, false, true},
		"the writer is stopping": {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHand("a", newMetrics())
				for range 4 {
					listen(h, beat)
				}
				h.take(held, nothing{}, false, func() {})
				if !h.claim(held) {
					t.Fatal("cannot claim what is free")
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				answer := make(chan bool, 1)
				go func() { answer <- h.announced(ctx, held) }()
				synctest.Wait()
				select {
				case <-answer:
					t.Fatal("it does not wait until it has been told")
				default:
				}
				hears(h, 1, c.others...)
				if c.cut {
					stop()
				} else {
					listen(h, beat)
				}
				if got := <-answer; got != c.want {
					t.Errorf("it is ours: %t, want %t", got, c.want)
				}
			})
		})
	}
}
