package reflector

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/versions"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// following runs a watch of pods; the test makes up the API server's events.
type following struct {
	*Reflector
	w    *watch.FakeWatcher
	stop context.CancelFunc
	err  chan error
	from uint64 // the last message at first
}

func follows(t *testing.T, k *Reflector) *following {
	t.Helper()
	k.epoch, k.wake = storageepoch.New(), make(chan struct{}, 1)
	k.epochClaims, k.shownAsked, k.reports = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	k.created = watchertest.Standing(t, k.bus, logPods).Created
	ctx, cancel := context.WithCancel(t.Context())
	f := &following{Reflector: k, w: watch.NewFake(), stop: cancel, err: make(chan error, 1), from: k.appender.Last()}
	go func() { f.err <- k.watch(ctx, f.w, false) }()
	synctest.Wait()
	return f
}

// said returns what the log has since the watch began.
func (f *following) said(t *testing.T) string {
	t.Helper()
	synctest.Wait()
	return strings.Join(watchertest.Ops(toldSince(t, f.bus, f.from)), " ")
}

// ends returns why the watch has ended; nil while it runs.
func (f *following) ends() error {
	synctest.Wait()
	select {
	case err := <-f.err:
		return err
	default:
		return nil
	}
}

// A watch runs until something ends it, and returns the reason.
func TestWhatEndsAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			do   func(*following)
			err  error
			said string
		}{
			"the server":        {func(f *following) { f.w.Add(watchertest.AVersion("a", 10)); f.w.Stop() }, errEnded, "is a"},
			"its context":       {func(f *following) { f.stop() }, context.Canceled, ""},
			"another epoch":     {func(f *following) { f.Reflector.epoch.Begin(5) }, errOldEpoch, ""},
			"what is no object": {func(f *following) { f.w.Add(&metav1.Status{}) }, nil, ""},
			"an error": {func(f *following) {
				f.w.Error(&metav1.Status{Reason: metav1.StatusReasonExpired, Code: 410, Status: metav1.StatusFailure})
			}, nil, ""},
			"a log that goes on": {func(f *following) {
				other, err := f.bus.Append(t.Context(), "pods")
				if err == nil {
					err = (&Reflector{kind: kinds.Pods.Kind, bus: f.bus, metrics: NewMetrics(), appender: other}).mark(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
				f.w.Add(watchertest.AVersion("a", 10))
			}, bus.ErrOvertaken, "mark"},
		} {
			k, _ := recorded(t, 1, 0)
			f := follows(t, k)
			if err := f.ends(); err != nil {
				t.Errorf("%s: the session ends before, %v", what, err)
			}
			c.do(f)
			if err := f.ends(); err == nil || c.err != nil && !errors.Is(err, c.err) || what == "an error" && !source.Expired(err) {
				t.Errorf("%s: the session ends with %v, want %v", what, err, c.err)
			}
			if got := f.said(t); got != c.said || !f.w.IsStopped() {
				t.Errorf("%s: the session records %q, want %q; its watch has ended: %t", what, got, c.said, f.w.IsStopped())
			}
			f.stop()
		}
	})
}

// A watch shows a mark when asked, records waiting versions, and acts on a report within a second
// although it rests.
func TestWhatIsAskedOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := recorded(t, 1, 0)
		k.age = 24 * time.Hour
		k.bounds.Bound = versions.Bound{Burst: 100, PerSecond: 100}
		f := follows(t, k)
		defer f.stop()
		if synced, err := k.Status(); !synced || err != nil {
			t.Errorf("a kind that is watched is synced: %t, %v; want true", synced, err)
		}
		signal(k.shownAsked)
		if got := f.said(t); got != "mark" {
			t.Errorf("when a sign is asked for the session records %q, want a mark", got)
		}
		large := watchertest.AVersion("a", 10)
		large.Labels = map[string]string{"l": strings.Repeat("l", 200)}
		next := large.DeepCopy()
		next.ResourceVersion = "11"
		f.w.Modify(large)
		f.w.Modify(next)
		if got := f.said(t); got != "mark is a" {
			t.Errorf("beyond the bound the session records %q, want one version", got)
		}
		if time.Sleep(10 * time.Second); f.said(t) != "mark is a is a mark" { // virtual
			t.Errorf("when there is room the session records %q", f.said(t))
		}
		time.Sleep(4*time.Minute + 300*time.Millisecond)
		rests := f.said(t)
		k.Report(report.Damage{Kind: "pods", End: 9, Hole: events.Hole{Reason: "of a test"}})
		time.Sleep(checkEvery - 1)
		if err := f.ends(); err != nil {
			t.Errorf("the session looks before a second is over: %v", err)
		}
		time.Sleep(1)
		if err := f.ends(); !errors.Is(err, events.ErrDamaged) || !strings.Contains(err.Error(), "of a test") {
			t.Errorf("after a second the session ends with %v, having recorded %q; want ErrDamaged", err, rests)
		}
	})
}

// A watch without events still marks its position. It records objects again when the log needs it:
// at the first look, where readers begin too far back.
func TestWhatAWatchSaysByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := recorded(t, 1, 0)
		k.age = 24 * time.Hour
		f := follows(t, k)
		time.Sleep(10*time.Minute + keyframeSoon - 1) // virtual
		if got := f.said(t); got != "" {
			t.Errorf("in ten minutes the session records %q, want nothing", got)
		}
		if time.Sleep(1); f.said(t) != "mark" {
			t.Errorf("after ten minutes the session records %q, want a mark", f.said(t))
		}
		time.Sleep(12 * time.Hour)
		if got := f.said(t); !strings.Contains(got, "is p0 mark") {
			t.Errorf("after half a day the session records %q, want the object and a mark", got)
		}
		f.stop()
		for what, k := range map[string]*Reflector{
			"too many messages": past(t, memory.New(memory.Options{}), 2, 5100), "a log that keeps less": past(t, memory.New(memory.Options{}), 2, 0),
		} {
			if k.age = 24 * time.Hour; what == "a log that keeps less" {
				time.Sleep(13 * time.Hour)
				k.ageLowered = true
			}
			k.marked = time.Now()
			f := follows(t, k)
			time.Sleep(checkEvery - 1)
			if got := f.said(t); got != "" {
				t.Errorf("with %s the session records %q before it has looked, want nothing", what, got)
			}
			time.Sleep(1 + shorterLogPoll) // an expired mark is waited for
			if got := f.said(t); got != "is p0 is p1 mark" {
				t.Errorf("with %s the session records %q, want both objects and a mark", what, got)
			}
			f.stop()
		}
	})
}

// A session whose history cannot be proved ends. It proves a resumed watch at once, and not one
// that began with a list.
func TestAResumedWatchIsProved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, resumed := range []bool{true, false} {
			k, _, s := beside(t)
			k.wake, k.epochClaims, k.shownAsked, k.reports = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
			k.cursor, k.latest = translate.Cursor{Version: "99"}, noDelta
			ctx, cancel := context.WithCancel(t.Context())
			ends := make(chan error, 1)
			go func() { ends <- k.watch(ctx, watch.NewFake(), resumed) }()
			synctest.Wait()
			if !resumed {
				if len(ends) != 0 {
					t.Errorf("a session after a list ends at once: %v", <-ends)
				}
				signal(k.epochClaims)
			}
			if synctest.Wait(); len(ends) != 1 || !errors.Is(<-ends, errRewound) {
				t.Errorf("resumed %t: it goes on although the storage went back", resumed)
			}
			cancel()
			if s.Open() != 0 {
				t.Error("a request is still open")
			}
		}
	})
}

// While the API server does not answer, the watcher goes on marking, and records again what would
// fall out of the log. Then it resumes, and no gap is needed.
func TestReadersAreServedWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		b := memory.New(memory.Options{LogAge: time.Hour})
		s.PutPod("a", 0)
		runs(t, s.Source(t), b)
		time.Sleep(5 * time.Second) // virtual, as all of them here
		s.Vanish()
		s.CutWatches()
		from := time.Now()
		time.Sleep(50 * time.Minute)
		said := toldSince(t, b, 2)
		last := from
		for _, m := range said {
			if m.Op == events.Mark {
				if m.Census.Objects != 1 || m.Since == 0 || m.ResourceVersion == "" || m.At.Sub(last) > markEvery+10*time.Second {
					t.Errorf("after %v there is the mark %+v", m.At.Sub(last), m)
				}
				last = m.At
			}
		}
		if time.Since(last) > markEvery+10*time.Second {
			t.Errorf("the last mark is %v old", time.Since(last))
		}
		if got := strings.Join(watchertest.Ops(said), " "); strings.Count(got, "is a") != 1 || len(said) > 15 {
			t.Errorf("the session records %q, want the object once, and marks", got)
		}
		before := watchertest.Standing(t, b, logPods).Last
		s.Break(nil)
		s.PutPod("a", 0)
		time.Sleep(10 * time.Second)
		if got := strings.Join(watchertest.Ops(toldSince(t, b, before)), " "); strings.TrimPrefix(got, "mark ") != "is a" || s.Listed() != 1 {
			t.Errorf("when the API server answers again the session records %q, after %d lists; want the change, after 1", got, s.Listed())
		}
	})
}
