package claim

import (
	"testing"
	"testing/synctest"
	"time"
)

// What another writer says that it is carrying out is let be, for as long as that
// writer is there; and nothing is taken away from others before it is known who
// they are.
func TestOneHandAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := Place{"rs", 7}
		mine, theirs := newParty("a"), newParty("b")
		listen(mine, Interval)
		if mine.claim(at) {
			t.Error("claimed before it could hear the others")
		}
		theirs.take(at, true)
		for range 3 {
			listen(mine, Interval)
		}
		for range 5 {
			listen(mine, Interval/2)
			said := theirs.heartbeat()
			mine.hear(said)
			if mine.claim(at) || !mine.elsewhere(at) {
				t.Fatal("claimed what another one has in flight")
			}
			if !mine.claim(Place{"rs", 8}) || !mine.claim(Place{"other", 7}) {
				t.Fatal("what no writer has cannot be claimed")
			}
		}
		for range 8 { // the other one has died
			listen(mine, Interval/2)
		}
		if !mine.claim(at) {
			t.Error("a dead writer keeps its turns")
		}
	})
}

// A turn that may be another's is not said to be ours before it has been claimed:
// two that look at each other would let it be for ever.
func TestWhatIsNotClaimedIsNotSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, at := newParty("a"), Place{"rs", 7}
		h.take(at, false)
		if said := h.heartbeat(); len(said.Turns["rs"]) != 0 {
			t.Errorf("said %v", said)
		}
		for range 4 {
			listen(h, Interval)
		}
		if !h.claim(at) {
			t.Fatal("cannot claim what is free")
		}
		if said := h.heartbeat(); len(said.Turns["rs"]) != 1 {
			t.Errorf("said %v", said)
		}
	})
}

// A turn that has only waited is known to: as long as this writer has heard all that any
// writer said since before it was stored, if late, and no writer has let go of anything.
func TestWhatHasOnlyWaitedIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(mine, theirs party)
		want    bool
	}{
		"nothing happens":       {func(mine, _ party) { listen(mine, Interval) }, true},
		"the other one is idle": {func(mine, theirs party) { talk(mine, theirs); talk(mine, theirs) }, true},
		"the other one dies": {func(mine, theirs party) {
			talk(mine, theirs)
			for range 5 {
				listen(mine, Interval)
			}
		}, false},
		"the other one is silent as yet": {func(mine, theirs party) {
			talk(mine, theirs)
			listen(mine, Expiry/2)
			listen(mine, Expiry/2) // and no Interval since
		}, false},
		"the other one was slow, and is heard again": {func(mine, theirs party) {
			talk(mine, theirs)
			for range 5 {
				listen(mine, Interval)
			}
			talk(mine, theirs)
		}, true},
		"the other one is forgotten": {func(mine, theirs party) {
			talk(mine, theirs)
			for range forgotten / Interval {
				listen(mine, Interval)
			}
			listen(mine, Interval)
		}, false},
		"something is not heard": {func(mine, theirs party) {
			talk(mine, theirs)
			theirs.heartbeat()
			talk(mine, theirs)
		}, false},
		"it does not hear itself":      {func(mine, _ party) { mine.heartbeat(); time.Sleep(Expiry) }, false},
		"it has hardly listened again": {func(mine, _ party) { time.Sleep(Expiry); listen(mine, 0); listen(mine, Interval) }, false},
		"it was stopped meanwhile":     {func(mine, _ party) { again(mine) }, true},
		"it was cut off meanwhile":     {func(mine, _ party) { mine.missed(); again(mine) }, false},
		"it lets go of a turn":         {func(mine, _ party) { listen(mine, Interval); mine.giveUp() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, theirs := newParty("a"), newParty("b")
				if mine.watched(time.Now()) {
					t.Error("it knows of a time in which it did not listen")
				}
				for range 3 {
					listen(mine, Interval)
				}
				stored := time.Now()
				time.Sleep(time.Millisecond)
				c.happens(mine, theirs)
				if got := mine.watched(stored); got != c.want {
					t.Errorf("known: %t, want %t", got, c.want)
				}
				if mine.watched(stored.Add(-3 * Interval)) {
					t.Error("it knows of a time before it listened")
				}
			})
		})
	}
}

// A turn that one writer alone comes to for the first time needs not even be looked up.
func TestWhoIsAloneKnowsWhatItHasNotHad(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(mine, theirs party)
		want    bool
	}{
		"no other writer is there":  {func(party, party) {}, true},
		"another turn was taken":    {func(mine, _ party) { mine.take(Place{"rs", 6}, true) }, true},
		"one of another controller": {func(mine, _ party) { mine.take(Place{"other", 8}, true) }, true},
		"it is of long ago":         {func(mine, _ party) { mine.take(Place{"rs", 8}, true) }, false},
		"it was had before": {func(mine, _ party) {
			mine.take(Place{"rs", 7}, true)
			mine.Release(Place{"rs", 7})
		}, false},
		"another writer is there":  {func(mine, theirs party) { talk(mine, theirs) }, false},
		"another writer was there": {func(mine, theirs party) { talk(mine, theirs); listen(mine, forgotten-Interval); listen(mine, 0) }, false},
		"it is hardly remembered":  {func(party, party) { time.Sleep(forgotten) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, theirs, at := newParty("a"), newParty("b"), Place{"rs", 7}
				stored := time.Now()
				c.happens(mine, theirs)
				mine.take(at, false)
				if got := mine.alone(at, stored); got != c.want {
					t.Errorf("never given to anybody: %t, want %t", got, c.want)
				}
				if mine.alone(Place{"rs", 9}, stored) {
					t.Error("it knows of what it does not have")
				}
			})
		})
	}
}
