package watcher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

var (
	away    = watchertest.ErrAway
	logPods = subject.LogStream("pods")
)

// What package reflector does, at the longest: how long after a report it looks at the log, how often
// it shows that it watches a kind, and how long it waits for a server that refuses.
const (
	checkEvery = time.Second
	showEvery  = 2 * time.Second
	farPause   = 10 * time.Second
)

// kept is a keeper that only says what a test tells it.
type kept struct {
	kind   kinds.Name
	synced bool
	err    error
	since  time.Time     // when err was set
	claims chan struct{} // a token: it was asked to check the epoch
}

// note sets the newest error, as the watch of a kind does.
func (k *kept) note(err error) {
	if k.err == nil {
		k.since = time.Now()
	}
	k.synced, k.err = k.synced || err == nil, err
}

func (k *kept) Run(context.Context)   {}
func (k *kept) Status() (bool, error) { return k.synced, k.err }
func (k *kept) Report(report.Damage)  {}
func (k *kept) CheckEpoch()           { signal(k.claims) }
func (k *kept) ShowWatched()          {}
func (k *kept) Unwatched(now time.Time) (u report.Unwatched, ok bool) {
	if k.err == nil || now.Sub(k.since) < report.StallAfter {
		return u, false
	}
	return report.Unwatched{Kind: k.kind, Reason: k.err.Error(), Since: k.since}, true
}

// podLog is an open log of pods, as another watcher keeps it.
type podLog struct{ bus.Appender }

func (l podLog) append(ctx context.Context, d events.Delta) error {
	if err := l.Append(ctx, events.Seal(subject.Message(d))); err != nil {
		return err
	}
	return l.Flush(ctx)
}

func (l podLog) mark(ctx context.Context) error {
	return l.append(ctx, translate.Mark("pods", "9", translate.Stamp{At: time.Now()}))
}

// recorded is a log with some pods and a mark behind them, on an ailing bus.
func recorded(t *testing.T, pods int) (podLog, *bustest.Bus) {
	t.Helper()
	b := memory.New(memory.Options{})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	log := podLog{appender}
	for i := range pods {
		err := log.append(t.Context(), events.Delta{
			Kind: "pods", Op: events.Is, UID: types.UID(fmt.Sprint("u", i)), ResourceVersion: "7", At: time.Now(), Ref: watchertest.APod(fmt.Sprint("p", i)),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := log.mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	return log, bustest.Wrap(b)
}
