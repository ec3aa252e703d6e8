package watcher

import "time"

// lookTimer says when a session checks the reports about its kind and the streams: every lookEvery
// while the kind changes, and every lookResting while it does not. There are many kinds, and most
// rest most of the time.
type lookTimer struct {
	timer   *time.Timer
	resting bool
}

func newLookTimer() *lookTimer { return &lookTimer{timer: time.NewTimer(lookEvery)} }

// wake ends the rest: something has happened.
func (l *lookTimer) wake() {
	if l.resting {
		l.resting = false
		l.timer.Reset(lookEvery)
	}
}

// again sets the timer; the session calls it after each look.
func (l *lookTimer) again(rest bool) {
	wait := lookEvery
	if l.resting = rest; rest {
		wait = lookResting
	}
	l.timer.Reset(wait)
}

// atRest tells whether nothing has been appended since the last check of the streams, and the state
// held all of the log then.
func (k *kindWatch) atRest() bool {
	return k.appender.Last() == k.looked && k.behind == k.looked
}
