package shell

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// TestALostEndIsAskedAbout: if a log has lost its end, the engine decides nothing before a watcher has
// reported the objects, or none has for a minute.
func TestALostEndIsAskedAbout(t *testing.T) {
	pod := func(name string, version int, at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod(name, "", version), at)
	}
	mark := func(version string, at uint64, there ...events.Message) events.Message {
		return said(markAt(kinds.Pods.Kind, version, at), there...)
	}
	was, is := pod("p", 1, 1), pod("p", 3, 3)
	left := []events.Message{said(was, was), mark("1", 2, was)}
	gone := delta(kinds.Pods.Kind, events.Gone, aPod("p", "", 4), 3)
	for name, tc := range map[string]struct {
		known, spoken []events.Message
		after         time.Duration
		asked         int // at least
		opened        bool
	}{
		"nothing was lost":                  {left, nil, 0, 0, true},
		"no watcher speaks":                 {append(left, is), nil, lostEndPatience - time.Second, 50, false},
		"no watcher speaks for too long":    {append(left, is), nil, lostEndPatience + time.Second, 50, true},
		"a watcher says that it changed":    {append(left, is), []events.Message{said(is, is), mark("3", 4, is)}, 0, 0, true},
		"a watcher has not said everything": {append(left, is), []events.Message{said(is, is)}, 20 * time.Second, 19, false},
		"a watcher says that it is gone":    {append(left, is), []events.Message{said(gone), mark("4", 4)}, 0, 0, true},
		"a watcher says more than there is": {append(left, is), []events.Message{mark("9", 3, is)}, 20 * time.Second, 19, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := cache.New()
				memory.Follow(kinds.Pods.Kind)
				memory.Fold("pods", tc.known)
				memory.Forget("pods")
				b := &growing{grown: make(chan struct{}), log: slices.Clone(left)}
				followed(t, b, memory, func(f *Follower, l *Loop) {
					if b.add(tc.spoken...); tc.after > 0 {
						time.Sleep(tc.after) // virtual
					}
					synctest.Wait()
					last, asked := b.lastReport()
					if opened := !isShut(l, "pods"); opened != tc.opened || asked < tc.asked {
						t.Errorf("the kind is open: %t, and the follower reported %d times that the log has lost its end", opened, asked)
					}
					if tc.spoken == nil && asked > 0 && (last.End != 2 || last.Kind != "pods" || last.Hole.Reason != "the log has lost its end") {
						t.Errorf("the report is %+v, want the log of pods with its end at 2", last)
					}
					time.Sleep(2 * reportEvery)
					if _, again := b.lastReport(); tc.opened && again > asked {
						t.Errorf("the follower reported %d times more after the kind was opened, want 0", again-asked)
					}
				})
			})
		})
	}
}

// hear runs an engine's inbox until stop is called.
func hear(l *Loop) (stop func()) {
	over, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		for {
			select {
			case say := <-l.inbox:
				engines.Lock()
				say()
				engines.Unlock()
			case <-over:
				engines.Lock()
				defer engines.Unlock()
				l.drain()
				return
			}
		}
	}()
	return func() { close(over); <-heard }
}

// The wait for a watcher begins once, and ends when one has reported.
func TestTheWaitForAWatcherBeginsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resigned := 0
		begin := func() *Follower {
			f := &Follower{Kind: kinds.Pods.Kind, waitTimer: time.AfterFunc(lostEndPatience, func() { resigned++ })}
			f.waitTimer.Stop()
			f.waitForWatcher(2)
			return f
		}
		f := begin()
		time.Sleep(lostEndPatience / 2) // virtual
		f.waitForWatcher(3)
		if d := f.lostEnd.damage; f.lostEnd.current() == nil || d.Kind != "pods" || d.End != 2 {
			t.Errorf("the follower reports %+v because of %v, want the end 2 of the log of pods", d, f.lostEnd.current())
		}
		time.Sleep(lostEndPatience / 2)
		if synctest.Wait(); resigned != 1 {
			t.Errorf("after a minute without a watcher the follower has given up %d times, want once", resigned)
		}
		f = begin()
		f.stopWaiting()
		time.Sleep(2 * lostEndPatience)
		if synctest.Wait(); resigned != 1 || f.lostEnd.current() != nil {
			t.Error("the follower gives up, or reports, although a watcher has recorded something")
		}
	})
}
