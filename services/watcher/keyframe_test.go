package watcher

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/translate"
)

func TestOldObjectsAreSaidAgainAndYoungOnesAreNot(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 1 }) // the mark of an empty list
	s.change("ADDED", "a", 0)
	s.change("ADDED", "b", 0)
	s.change("DELETED", "b", 0)
	until(t, func() bool { log := logOf(t, b); return len(log) > 0 && log[len(log)-1].Op == events.Gone })
	stop()
	before := len(logOf(t, b))
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	k := &kindWatch{
		kind: kinds.Pods.Kind, bus: b, metrics: newMetrics(), appender: appender,
		age: time.Hour, cursor: translate.Cursor{Version: "9"}, marked: time.Now(),
	}
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

// TestWhatWasCountedAsGoneIsNotSaidAgain: a bus that has lost its index after the
// end of an object expired has an older message of it again.
func TestWhatWasCountedAsGoneIsNotSaidAgain(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	s.change("ADDED", "a", 0)
	s.change("ADDED", "ghost", 0)
	until(t, func() bool { return len(logOf(t, b)) == 3 })
	stop()
	before := logOf(t, b)
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	k := &kindWatch{
		kind: kinds.Pods.Kind, bus: b, metrics: newMetrics(), appender: appender,
		age: time.Nanosecond, cursor: translate.Cursor{Version: "9"}, marked: time.Now().Add(time.Hour),
	}
	for _, d := range before {
		if d.Ref.Name != "ghost" {
			k.tally.Fold(d)
		}
	}
	k.counted = true
	if _, err := k.keyframes(t.Context()); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("said again: %v", err)
	}
	if got := len(logOf(t, b)); got != len(before) {
		t.Errorf("%d more messages in the log", got-len(before))
	}
}
