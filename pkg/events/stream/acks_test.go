package stream

import (
	"testing"
	"testing/synctest"
	"time"
)

// A reader's timer runs only while messages are left to acknowledge, so that a hundred readers without
// work wake up nothing.
func TestWhenAReaderAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dealt, asked := uint64(0), 0
		f := &session{follower: &follower{processed: func() uint64 { asked++; return dealt }}}
		timer := newAckTimer()
		ticks := func(within time.Duration) bool {
			select {
			case <-timer.C:
				return true
			case <-time.After(within): // virtual
				return false
			}
		}
		if timer.arm(f); ticks(time.Hour) {
			t.Error("it ticks without messages")
		}
		f.acks.Add(1, "")
		if timer.arm(f); ticks(ackEvery-1) || !ticks(2) {
			t.Error("it does not tick in time")
		}
		if timer.ticked(f); asked != 1 || !ticks(ackEvery+1) {
			t.Errorf("while one is left it does not tick again; asked %d times", asked)
		}
		dealt = 1
		if timer.ticked(f); asked != 2 || ticks(time.Hour) {
			t.Errorf("when none is left it ticks; asked %d times", asked)
		}
		if timer.end(f); asked != 3 {
			t.Error("at the end it does not acknowledge")
		}
		other := &session{follower: &follower{}}
		other.acks.Add(1, "")
		timer = newAckTimer()
		if timer.arm(other); ticks(time.Hour) {
			t.Error("a reader that does not acknowledge has a timer")
		}
		timer.end(other)
	})
}

// StoreLimit checks a store more often the less is left of it, so that it cannot fill in
// between.
func TestHowOftenAStoreIsLookedAt(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	b := &Bus{}
	for used, want := range map[uint64]time.Duration{
		0: 5 * time.Second, 80 * gib / 100: 200 * time.Millisecond, gib: 200 * time.Millisecond, 2 * gib: 200 * time.Millisecond,
	} {
		s := b.StoreLimit(gib)
		s.used.Store(used)
		if got := s.untilScarce(); got != want {
			t.Errorf("with %d bytes of a GiB it is looked at again in %v, want %v", used, got, want)
		}
	}
	s := b.StoreLimit(10 * gib)
	s.used.Store(8*gib - 100<<20)
	if got := s.untilScarce(); got < 999*time.Millisecond || got > 1001*time.Millisecond {
		t.Errorf("with room for a second it is looked at again in %v", got)
	}
	if s := b.StoreLimit(-1); s.most != 0 {
		t.Errorf("a store of -1 bytes has %d", s.most)
	}
}
