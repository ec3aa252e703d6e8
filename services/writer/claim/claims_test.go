package claim

import (
	"testing"
	"testing/synctest"
	"time"
)

// A writer leaves the turns that another one claims alone while that writer is alive, and takes no
// turn that may be another's before it knows the others.
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
				t.Fatal("claim takes a turn that another writer has in flight")
			}
			if !mine.claim(Place{"rs", 8}) || !mine.claim(Place{"other", 7}) {
				t.Fatal("claim refuses a turn that no writer has in flight")
			}
		}
		for range 8 { // the other writer has died
			listen(mine, Interval/2)
		}
		if !mine.claim(at) {
			t.Error("a dead writer keeps its turns")
		}
	})
}

// A writer does not announce a turn that may be another's before it has claimed it: otherwise two
// writers that see each other would both leave the turn alone forever.
func TestWhatIsNotClaimedIsNotSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, at := newParty("a"), Place{"rs", 7}
		h.take(at, false)
		if said := h.heartbeat(); len(said.Turns["rs"]) != 0 {
			t.Errorf("the heartbeat has the turns %v before the writer listens, want none of rs", said)
		}
		for range 4 {
			listen(h, Interval)
		}
		if !h.claim(at) {
			t.Fatal("claim refuses a free turn")
		}
		if said := h.heartbeat(); len(said.Turns["rs"]) != 1 {
			t.Errorf("the heartbeat has the turns %v, want one of rs", said)
		}
	})
}

// A writer knows that a turn has only waited if it has received all heartbeats since before the
// turn was stored, even if late, and no writer has given anything up.
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
			listen(mine, Expiry/2) // and no heartbeat since
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
			for range forgetAfter / Interval {
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
					t.Error("watched is true for a time in which the writer did not listen")
				}
				for range 3 {
					listen(mine, Interval)
				}
				stored := time.Now()
				time.Sleep(time.Millisecond)
				c.happens(mine, theirs)
				if got := mine.watched(stored); got != c.want {
					t.Errorf("the writer has watched since the turn was stored: %t, want %t", got, c.want)
				}
				if mine.watched(stored.Add(-3 * Interval)) {
					t.Error("watched is true for a time before the writer listened")
				}
			})
		})
	}
}

// A writer that is alone and reaches a turn for the first time need not even look it up.
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
		"another writer was there": {func(mine, theirs party) { talk(mine, theirs); listen(mine, forgetAfter-Interval); listen(mine, 0) }, false},
		"it is hardly remembered":  {func(party, party) { time.Sleep(forgetAfter) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, theirs, at := newParty("a"), newParty("b"), Place{"rs", 7}
				stored := time.Now()
				c.happens(mine, theirs)
				mine.take(at, false)
				if got := mine.alone(at, stored); got != c.want {
					t.Errorf("the turn was never given to any writer: %t, want %t", got, c.want)
				}
				if mine.alone(Place{"rs", 9}, stored) {
					t.Error("alone is true for a turn that the writer does not have")
				}
			})
		})
	}
}
