package writer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// listen has a hand say a beat, which comes back after a while.
func listen(h *hand, after time.Duration) {
	_, said := h.beat()
	time.Sleep(after)
	h.hear(said.Encode())
}

// What another writer says that it is carrying out is let be, for as long as that
// writer is there; and nothing is taken away from others before it is known who
// they are.
func TestOneHandAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := place{"rs", 7}
		mine, theirs := newHand("a", newMetrics()), newHand("b", newMetrics())
		listen(mine, beat)
		if mine.claim(at) {
			t.Error("claimed before it could hear the others")
		}
		theirs.take(at, nothing{}, true, func() {})
		for range 3 {
			listen(mine, beat)
		}
		for range 5 {
			listen(mine, beat/2)
			_, said := theirs.beat()
			mine.hear(said.Encode())
			if mine.claim(at) || !mine.elsewhere(at) {
				t.Fatal("claimed what another one has in hand")
			}
			if !mine.claim(place{"rs", 8}) || !mine.claim(place{"other", 7}) {
				t.Fatal("what nobody has cannot be claimed")
			}
		}
		for range 8 { // the other one has died
			listen(mine, beat/2)
		}
		if !mine.claim(at) {
			t.Error("a dead writer keeps its turns")
		}
	})
}

// A turn that may be another's is not said to be ours before it has been claimed:
// two that look at each other would let it be for ever.
func TestWhatIsNotClaimedIsNotSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, at := newHand("a", newMetrics()), place{"rs", 7}
		h.take(at, nothing{}, false, func() {})
		if _, said := h.beat(); len(said.Turns["rs"]) != 0 {
			t.Errorf("said %v", said)
		}
		for range 4 {
			listen(h, beat)
		}
		if !h.claim(at) {
			t.Fatal("cannot claim what is free")
		}
		if _, said := h.beat(); len(said.Turns["rs"]) != 1 {
			t.Errorf("said %v", said)
		}
	})
}

// A turn that has only waited is known to: as long as this writer has heard all that
// anybody said since before it was stored, if late, and nobody has let go of anything.
func TestWhatHasOnlyWaitedIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(mine, theirs *hand)
		want    bool
	}{
		"nothing happens":       {func(mine, _ *hand) { listen(mine, beat) }, true},
		"the other one is idle": {func(mine, theirs *hand) { talk(mine, theirs); talk(mine, theirs) }, true},
		"the other one dies": {func(mine, theirs *hand) {
			talk(mine, theirs)
			for range 5 {
				listen(mine, beat)
			}
		}, false},
		"the other one is silent as yet": {func(mine, theirs *hand) {
			talk(mine, theirs)
			listen(mine, lapse/2)
			listen(mine, lapse/2) // and no beat since
		}, false},
		"the other one was slow, and is heard again": {func(mine, theirs *hand) {
			talk(mine, theirs)
			for range 5 {
				listen(mine, beat)
			}
			talk(mine, theirs)
		}, true},
		"the other one is forgotten": {func(mine, theirs *hand) {
			talk(mine, theirs)
			for range mourning / beat {
				listen(mine, beat)
			}
			listen(mine, beat)
		}, false},
		"something is not heard": {func(mine, theirs *hand) {
			talk(mine, theirs)
			theirs.beat()
			talk(mine, theirs)
		}, false},
		"it does not hear itself":      {func(mine, _ *hand) { mine.beat(); time.Sleep(lapse) }, false},
		"it has hardly listened again": {func(mine, _ *hand) { time.Sleep(lapse); listen(mine, 0); listen(mine, beat) }, false},
		"it was stopped meanwhile":     {func(mine, _ *hand) { again(mine) }, true},
		"it was cut off meanwhile":     {func(mine, _ *hand) { mine.missed(); again(mine) }, false},
		"it lets go of a turn":         {func(mine, _ *hand) { listen(mine, beat); mine.abandon() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, theirs := newHand("a", newMetrics()), newHand("b", newMetrics())
				if mine.watched(time.Now()) {
					t.Error("it knows of a time in which it did not listen")
				}
				for range 3 {
					listen(mine, beat)
				}
				stored := time.Now()
				time.Sleep(time.Millisecond)
				c.happens(mine, theirs)
				if got := mine.watched(stored); got != c.want {
					t.Errorf("known: %t, want %t", got, c.want)
				}
				if mine.watched(stored.Add(-3 * beat)) {
					t.Error("it knows of a time before it listened")
				}
			})
		})
	}
}

// A turn that one writer alone comes to for the first time needs not even be looked up.
func TestWhoIsAloneKnowsWhatItHasNotHad(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(mine, theirs *hand)
		want    bool
	}{
		"nobody is there":           {func(*hand, *hand) {}, true},
		"another turn was taken":    {func(mine, _ *hand) { mine.take(place{"rs", 6}, nothing{}, true, func() {}) }, true},
		"one of another controller": {func(mine, _ *hand) { mine.take(place{"other", 8}, nothing{}, true, func() {}) }, true},
		"it is of long ago":         {func(mine, _ *hand) { mine.take(place{"rs", 8}, nothing{}, true, func() {}) }, false},
		"it was had before": {func(mine, _ *hand) {
			mine.take(place{"rs", 7}, nothing{}, true, func() {})
			mine.answer(place{"rs", 7}, func(bus.Delivery) {})
		}, false},
		"somebody else is there":  {func(mine, theirs *hand) { talk(mine, theirs) }, false},
		"somebody else was there": {func(mine, theirs *hand) { talk(mine, theirs); listen(mine, mourning-beat); listen(mine, 0) }, false},
		"it is hardly remembered": {func(*hand, *hand) { time.Sleep(mourning) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, theirs, at := newHand("a", newMetrics()), newHand("b", newMetrics()), place{"rs", 7}
				stored := time.Now()
				c.happens(mine, theirs)
				mine.take(at, nothing{}, false, func() {})
				if got := mine.alone(at, stored); got != c.want {
					t.Errorf("never given to anybody: %t, want %t", got, c.want)
				}
				if mine.alone(place{"rs", 9}, stored) {
					t.Error("it knows of what it does not have")
				}
			})
		})
	}
}

// talk has two hear each other.
func talk(mine, theirs *hand) {
	_, said := theirs.beat()
	mine.hear(said.Encode())
	listen(mine, beat)
}

// nothing is a delivery whose answers nobody hears.
type nothing struct{}

var _ bus.Delivery = nothing{}

func (nothing) Message() events.Message { return events.Message{} }
func (nothing) Attempt() int            { return 1 }
func (nothing) Done()                   {}
func (nothing) Later(time.Duration)     {}
func (nothing) Hopeless(string)         {}
func (nothing) Working()                {}
