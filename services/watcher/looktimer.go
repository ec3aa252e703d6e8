package watcher

import "time"

// lookTimer says when a session looks at what is said of its kind and at the streams:
// every lookEvery while anything happens, and every lookResting where nothing does. In
// most kinds nothing does most of the time, and there are many.
type lookTimer struct {
	timer   *time.Timer
	resting bool
}

func newLookTimer() *lookTimer { return &lookTimer{timer: time.NewTimer(lookEvery)} }

// wake says that something has happened.
func (l *lookTimer) wake() {
	if l.resting {
		l.resting = false
		l.timer.Reset(lookEvery)
	}
}

// again is to be called after each look.
func (l *lookTimer) again(rest bool) {
	wait := lookEvery
	if l.resting = rest; rest {
		wait = lookResting
	}
	l.timer.Reset(wait)
}

// atRest tells whether nothing has been appended since the streams were looked at, and
// the state had all of it.
func (k *kindWatch) atRest() bool {
	return k.appender.Last() == k.looked && k.behind == k.looked
}
