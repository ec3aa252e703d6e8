package guest

import (
	"testing"
	"testing/synctest"
	"time"
)

// A guest hears the logs, turns and outcomes, and nothing else.
func TestWhatAGuestHears(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string]string{
		"EV_pods": "ev.pods.>", "TURN_c": "turn.c.>", "OUTCOME_c": "outcome.c.>", "WAKE": "", "NOTARY": "", "SHADOW_c": "", "STATUS": "",
	} {
		if got := hintSubject(stream); got != want {
			t.Errorf("a guest of %s hears hints on %q, want %q", stream, got, want)
		}
	}
}

// A guest that heard of a message reads at once and then less and less often, until it has
// found as many; a message that it does not find within 0.6 s was a false hint. Without a hint
// it reads every two seconds.
func TestWhenAGuestLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &hintListener{closed: make(chan struct{}), ctx: t.Context(), stop: func() {}, hints: make(chan struct{}, maxHints)}
		shaken := make(chan struct{})
		waits := func(when string, found int, want time.Duration) {
			t.Helper()
			e.found(found)
			began := time.Now()
			if err := e.wait(t.Context(), shaken, found > 0); err != nil || time.Since(began) != want {
				t.Errorf("%s the guest waits %v (%v), want %v", when, time.Since(began), err, want)
			}
		}
		waits("at rest", 0, 2*time.Second)
		waits("still at rest", 0, 2*time.Second)
		e.onHint()
		waits("with a hint", 0, 0) // the look was before it
		for wait := 5 * time.Millisecond; wait <= 320*time.Millisecond; wait *= 2 {
			waits("for what was heard", 0, wait)
		}
		waits("when nothing came of it", 0, 2*time.Second)
		e.onHint()
		e.onHint()
		waits("with two hints", 0, 0)
		waits("when one is found", 1, 20*time.Millisecond)
		waits("for the other", 0, 10*time.Millisecond)
		waits("when it is found", 1, 20*time.Millisecond+2*time.Second)
		waits("when more is found than was heard", 7, 20*time.Millisecond+2*time.Second)
		go func() { time.Sleep(time.Second); e.onHint() }()
		waits("until a hint comes", 0, time.Second)
		for range maxHints + 7 {
			e.onHint()
		}
		if e.count(); e.expected != maxHints+1 {
			t.Errorf("%d hints are counted", e.expected)
		}
		e.found(e.expected)
		close(shaken)
		waits("when something may be lost", 0, 0)
	})
}
