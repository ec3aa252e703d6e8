package watcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

func TestOldObjectsAreSaidAgainAndYoungOnesAreNot(t *testing.T) {
	b, k := aged(t)
	before := len(logOf(t, b))
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(logOf(t, b)); got != before {
		t.Errorf("%d keyframes of young objects", got-before)
	}
	k.age, k.marked = time.Nanosecond, time.Now().Add(time.Hour)
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := logOf(t, b)[before:]
	if got := fmt.Sprint(ops(again)); got != "[is a mark]" || !again[0].Sync {
		t.Errorf("keyframes %s", got)
	}
}

// The state is read by whoever starts, so it must not hold the dead of a day.
func TestOldEndsLeaveTheStateAndStayInTheLog(t *testing.T) {
	b, k := aged(t)
	end := subject.Delta(events.Ref{Kind: "pods", Namespace: "default", Name: "b"})
	there := func(stream string) bool {
		m, ok, err := b.Last(t.Context(), stream, end)
		if err != nil {
			t.Fatal(err)
		}
		return ok && m.Get(events.HeaderOp) == string(events.Gone)
	}
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return !k.pruning.Load() })
	if !there(subject.StateStream("pods")) {
		t.Error("an end has left the state that somebody may be waiting for")
	}
	k.age, k.marked = time.Nanosecond, time.Now().Add(time.Hour)
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return !there(subject.StateStream("pods")) })
	if !there(subject.LogStream("pods")) {
		t.Error("the log has lost the end")
	}
}

// aged is the keeper of a log that tells of an object that is there, a, and of one
// that is gone, b.
func aged(t *testing.T) (*memory.Bus, *kindWatch) {
	t.Helper()
	s, b := serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 1 }) // the mark of an empty list
	s.change("ADDED", "a", 0)
	s.change("ADDED", "b", 0)
	s.change("DELETED", "b", 0)
	until(t, func() bool { log := logOf(t, b); return len(log) > 0 && log[len(log)-1].Op == events.Gone })
	stop()
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	return b, &kindWatch{
		kind: kinds.Pods.Kind, bus: b, metrics: newMetrics(), appender: appender,
		age: time.Hour, cursor: translate.Cursor{Version: "9"}, marked: time.Now(),
	}
}
