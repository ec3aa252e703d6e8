package kindlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

var (
	away    = watchertest.ErrAway
	logPods = subject.LogStream("pods")
)

// written is a log of pods and what has been appended to it.
type written struct {
	bus      bus.Bus
	appender bus.Appender
	tally    events.Tally
	counted  bool // the next delta has a census
	after    events.Link
	places   Places
}

// append appends a delta and stores it, with its link and census.
func (k *written) append(ctx context.Context, d events.Delta) error {
	k.tally.Fold(d)
	if k.counted {
		d.Census = k.tally.Census()
	}
	d.After = k.after
	m := events.Seal(subject.Message(d))
	if err := k.appender.Append(ctx, m); err != nil {
		return err
	}
	if d.Ref.Name != "" {
		k.places.Note(d.Op, m.Subject, k.appender.Last())
	}
	if d.Op != events.Mark {
		k.after = events.Link{Sequence: k.appender.Last(), Sum: m.Get(events.HeaderSum)}
	}
	return k.appender.Flush(ctx)
}

// past stores existing pods, and behind them pods that were created and deleted, and a mark.
func past(t *testing.T, b bus.Bus, there, gone int) *written {
	t.Helper()
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	k := &written{bus: b, appender: appender, counted: true, places: Places{}}
	for i := range there + gone {
		d := events.Delta{
			Kind: "pods", Op: events.Is, UID: types.UID(fmt.Sprint("u", i)), ResourceVersion: "7", At: time.Now(), Ref: watchertest.APod(fmt.Sprint("p", i)),
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
	mark := translate.Mark("pods", "9", translate.Stamp{At: time.Now()})
	if mark.Since = k.places.Oldest(); mark.Since == 0 {
		mark.Since = k.appender.Last() + 1
	}
	if err := k.append(t.Context(), mark); err != nil {
		t.Fatal(err)
	}
	return k
}

// recorded is a log like that of past, on an ailing bus.
func recorded(t *testing.T, there, gone int) (*written, *bustest.Bus) {
	t.Helper()
	k := past(t, memory.New(memory.Options{}), there, gone)
	a := bustest.Wrap(k.bus)
	k.bus = a
	return k, a
}

// tells records pods, by their numbers.
func tells(t *testing.T, k *written, pods ...int) {
	t.Helper()
	for _, i := range pods {
		d := watchertest.ADelta(fmt.Sprint("p", i), 1)
		d.UID = types.UID(fmt.Sprint("u", i))
		if err := k.append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// Where the bus does not answer, a reader returns that error, and does not take a missing answer for
// an empty one.
func TestWhatIsNotAnsweredIsAnError(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		do    func(context.Context, bus.Bus) error
		fails []string
	}{
		"contents": {func(ctx context.Context, b bus.Bus) error { _, _, err := Read(ctx, b, "pods"); return err }, []string{"the log", "a message", "the mark", "the reading"}},
		"told":     {func(ctx context.Context, b bus.Bus) error { _, err := Newest(ctx, b, "pods"); return err }, []string{"the log", "a message"}},
		"scrub": {func(ctx context.Context, b bus.Bus) error {
			_, err := (&scrubber{bus: b, kind: "pods"}).pass(ctx)
			return err
		}, []string{"the log", "a message", "the reading"}},
	} {
		for _, fail := range c.fails {
			_, a := recorded(t, 3, 0)
			watchertest.Unanswered[fail](a)
			if err := c.do(t.Context(), a); !errors.Is(err, away) {
				t.Errorf("%s: %s is not answered: %v", what, fail, err)
			}
		}
	}
}
