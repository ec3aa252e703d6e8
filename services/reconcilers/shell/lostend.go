package shell

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A log that has lost its end looks intact (moment.go). So a follower that finds one older than
// what the memory knew asks the watchers, and waits.

// lostEndPatience is how long the follower waits. A kind that no watcher can list any more must
// not block a controller that reads every kind.
const lostEndPatience = time.Minute

// errNoWatcher ends a session in which no watcher has reported within lostEndPatience.
var errNoWatcher = errors.New("no watcher has said what there is")

// waitForWatcher asks the watchers, and starts the wait for one, at whose end the session breaks off.
func (f *Follower) waitForWatcher(position uint64) {
	if f.waitTimer == nil || f.waiting {
		return
	}
	f.lostEnd.begin(fmt.Errorf("%s has lost its end, and no watcher has said since what there is", subject.LogStream(f.Kind.Name)),
		report.Damage{Kind: f.Kind.Name, Hole: events.Hole{Reason: "the log has lost its end"}, End: position})
	f.waiting = true
	f.waitTimer.Reset(lostEndPatience)
}

// stopWaiting ends the wait.
func (f *Follower) stopWaiting() {
	f.lostEnd.end()
	if f.waitTimer != nil {
		f.waitTimer.Stop()
	}
}
