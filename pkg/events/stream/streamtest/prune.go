package streamtest

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

func testPrune(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	a := k.appender(kinds.Pods.Kind)
	k.append(a, k.pod("a", 1), k.gone("a", 2), k.pod("b", 3), k.gone("b", 4), k.pod("b", 5))
	state := subject.StateStream("pods")
	k.eventually("the state has its log", func() bool { return k.state(state).Last == 5 })
	for _, end := range []struct {
		of string
		at uint64
	}{{"a", 2}, {"b", 4}, {"nobody", 3}} { // b lives again
		k.must(b.Prune(k.ctx, "pods", subject.Delta(podRef(end.of)), end.at))
	}
	if at := k.state(state); at.Messages != 1 || at.Last != 5 {
		t.Errorf("the state holds %d messages up to %d, want that of b, at 5", at.Messages, at.Last)
	}
	if got := k.last(state, "b").Sequence; got != 5 {
		t.Errorf("b is at %d", got)
	}
	if got := k.state(subject.LogStream("pods")).Messages; got != 5 {
		t.Errorf("the log holds %d messages, want all 5", got)
	}
	k.append(a, k.pod("a", 6))
	k.eventually("the state follows its log", func() bool { return k.state(state).Last == 6 })
	if got := k.last(state, "a").Sequence; got != 6 {
		t.Errorf("a, which is there again, is at %d", got)
	}
}
