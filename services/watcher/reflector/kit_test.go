package reflector

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// runs runs a Reflector of pods until the test ends or stop is called.
func runs(t *testing.T, from *source.Source, b bus.Bus) (k *Reflector, stop func()) {
	t.Helper()
	k = New(Config{
		Kind: kinds.Pods.Kind, Bus: b, Metrics: NewMetrics(), Epoch: storageepoch.New(),
		Open: from.Kind, Want: func() kinds.Kind { return kinds.Pods.Kind }, Served: func(string) bool { return true },
		Resume: func(context.Context, uint64) func() { return func() {} }, Overtaken: func() {},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return k, stop
}

var (
	away    = watchertest.ErrAway
	logPods = subject.LogStream("pods")
)

// recorded is a watch of pods with some pods on record, and a mark behind them, on an ailing bus.
func recorded(t *testing.T, there, gone int) (*Reflector, *bustest.Bus) {
	t.Helper()
	k := past(t, memory.New(memory.Options{}), there, gone)
	a := bustest.Wrap(k.bus)
	k.bus = a
	return k, a
}

// past stores existing objects, and behind them objects that were created and deleted. It returns
// the watch that counted them.
func past(t *testing.T, b bus.Bus, there, gone int) *Reflector {
	t.Helper()
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	k := &Reflector{
		kind: kinds.Pods.Kind, bus: b, metrics: NewMetrics(), appender: appender,
		age: time.Hour, cursor: translate.Cursor{Version: "9"}, marked: time.Now(),
	}
	k.counted, k.places = true, kindlog.Places{}
	for i := range there + gone {
		d := events.Delta{
			Kind: "pods", Op: events.Is, UID: types.UID(fmt.Sprint("u", i)), ResourceVersion: "7", At: time.Now(),
			Ref: events.Ref{Kind: "pods", Namespace: "default", Name: fmt.Sprint("p", i)},
		}
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if i < there {
			continue
		}
		d.Op = events.Gone
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// counts makes a watch know what its log says.
func counts(t *testing.T, k *Reflector) {
	t.Helper()
	c, _, err := kindlog.Read(t.Context(), k.bus, k.kind.Name)
	if err != nil {
		t.Fatal(err)
	}
	k.countFrom(c)
}

// tells records pods, by their numbers.
func tells(t *testing.T, k *Reflector, pods ...int) {
	t.Helper()
	for _, i := range pods {
		d := watchertest.ADelta(fmt.Sprint("p", i), 1)
		d.UID = types.UID(fmt.Sprint("u", i))
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// toldSince returns the deltas of pods behind a message, without expired ones.
func toldSince(t *testing.T, b bus.Bus, sequence uint64) (log []events.Delta) {
	t.Helper()
	for sequence++; sequence <= watchertest.Standing(t, b, logPods).Last; sequence++ {
		d, there, err := kindlog.At(t.Context(), b, "pods", sequence)
		if err != nil {
			t.Fatal(err)
		}
		if there {
			log = append(log, d)
		}
	}
	return log
}
