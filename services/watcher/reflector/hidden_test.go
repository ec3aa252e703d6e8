package reflector

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// TestARuleReachesWhatIsSaidAgain: the watcher does not record a value again that was stored before
// there was a rule, neither in a keyframe nor in the end of a missing object.
func TestARuleReachesWhatIsSaidAgain(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.Edit("pods", "a", watchertest.Plants("one"))
	s.Edit("pods", "b", watchertest.Plants("one"))
	_, stop := runs(t, s.Source(t), b)
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 3 }) // and a mark
	stop()
	before := len(watchertest.LogOf(t, b))
	if !bytes.Contains(watchertest.LogOf(t, b)[0].Body, []byte(watchertest.Canary)) {
		t.Fatal("without a rule the value is hidden")
	}
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	k := &Reflector{
		kind: kinds.Pods.Kind, bus: b, metrics: NewMetrics(), appender: appender, redact: watchertest.Hides(t),
		age: time.Nanosecond, marked: time.Now().Add(time.Hour),
	}
	counts(t, k)
	if err := k.recordDeleted(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := watchertest.LogOf(t, b)[before:]
	first, second := watchertest.LogOf(t, b)[0].Ref.Name, watchertest.LogOf(t, b)[1].Ref.Name
	if got := fmt.Sprint(watchertest.Ops(again)); got != "[gone "+second+" is "+first+" mark]" {
		t.Fatalf("the log has %s, want one object again, and the deletion of the other", got)
	}
	for _, d := range again {
		if bytes.Contains(d.Body, []byte(watchertest.Canary)) {
			t.Errorf("%s of %v tells what is hidden by now", d.Op, d.Ref)
		}
		if d.Op != events.Mark && (d.Form != kinds.Full || !bytes.Contains(d.Body, []byte("kept"))) {
			t.Errorf("%s of %v has lost more than that", d.Op, d.Ref)
		}
	}
}
