package watcher

import "time"

// checkTimer says when a session checks the reports about its kind and the streams: every checkEvery
// while the kind changes, and every checkStreamsIdle while it does not. There are many kinds, and most
// rest most of the time.
type checkTimer struct {
	timer   *time.Timer
	resting bool
}

func newCheckTimer() *checkTimer { return &checkTimer{timer: time.NewTimer(checkEvery)} }

// wake ends the rest: something has happened.
func (l *checkTimer) wake() {
	if l.resting {
		l.resting = false
		l.timer.Reset(checkEvery)
	}
}

// again sets the timer; the session calls it after each look.
func (l *checkTimer) again(rest bool) {
	wait := checkEvery
	if l.resting = rest; rest {
		wait = checkStreamsIdle
	}
	l.timer.Reset(wait)
}

// atRest reports whether nothing has been appended since the last check of the log.
func (k *kindWatch) atRest() bool { return k.appender.Last() == k.checkedEnd }
