// Package watchertest is what the tests of the watcher share: an API server of pods, with or without a
// network (Server), what a bus has lost or damaged (Lose, Tear, Worn), and what a log on the bus says
// (LogOf).
package watchertest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ErrAway is the error of what a test puts out of reach.
var ErrAway = errors.New("away")

// LogOf returns the deltas in the log of pods; none where there is no log.
func LogOf(t *testing.T, b bus.Bus) (log []events.Delta) { return LogOfKind(t, b, "pods") }

// LogOfKind returns the deltas in the log of a kind.
func LogOfKind(t *testing.T, b bus.Bus, kind kinds.Name) (log []events.Delta) {
	at, err := b.StreamState(t.Context(), subject.LogStream(kind))
	if err != nil {
		return nil // not there yet
	}
	for sequence := at.First; sequence <= at.Last; sequence++ {
		m, there, err := b.At(t.Context(), subject.LogStream(kind), sequence)
		if err != nil || !there {
			t.Fatalf("message %d: there is %t, %v", sequence, there, err)
		}
		ref, err := subject.ParseDelta(m.Subject)
		if err != nil {
			t.Fatal(err)
		}
		d, err := events.DecodeDelta(ref, m)
		if err != nil {
			t.Fatalf("message %d: %v", sequence, err)
		}
		log = append(log, d)
	}
	return log
}

// Until waits until a condition holds.
func Until(t *testing.T, holds func() bool) {
	t.Helper()
	eventually.True(t, eventually.Long, "the condition holds", holds)
}

// Rings reports whether a wake has rung, in a bubble of synctest, and takes its token.
func Rings(wake chan struct{}) bool {
	synctest.Wait()
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// Ops returns the deltas in words: the op, and the name of the object if there is one.
func Ops(log []events.Delta) (text []string) {
	for _, d := range log {
		text = append(text, strings.TrimSpace(string(d.Op)+" "+d.Ref.Name))
	}
	return text
}

// Eventually waits until the log holds these deltas, leaving marks out.
func Eventually(t *testing.T, b bus.Bus, want ...string) {
	t.Helper()
	var got []string
	holds := func() bool {
		got = slices.DeleteFunc(Ops(LogOf(t, b)), func(op string) bool { return op == "mark" })
		return slices.Equal(got, want)
	}
	if !eventually.Within(eventually.Long, holds) {
		t.Fatalf("the log tells %q, want %q", got, want)
	}
}

// EventuallySorted waits until the log holds these deltas, in any order.
func EventuallySorted(t *testing.T, b bus.Bus, want ...string) {
	t.Helper()
	Until(t, func() bool {
		got := slices.DeleteFunc(Ops(LogOf(t, b)), func(s string) bool { return s == "mark" })
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// Logged returns a context that keeps what is logged.
func Logged(t *testing.T) (ctx context.Context, log func() string) {
	t.Helper()
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
	return klog.NewContext(t.Context(), logger), logger.GetSink().(ktesting.Underlier).GetBuffer().String
}

// Hole is what a gap reports.
func Hole(t *testing.T, d events.Delta) (h events.Hole) {
	t.Helper()
	if err := json.Unmarshal(d.Body, &h); err != nil || d.Op != events.Gap {
		t.Fatalf("%s %s: %v", d.Op, d.Body, err)
	}
	return h
}

// Standing returns the state of a stream.
func Standing(t *testing.T, b bus.Bus, stream string) bus.State {
	t.Helper()
	s, err := b.StreamState(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// LastOf returns the newest delta of a kind's log; the zero value when it has none.
func LastOf(t *testing.T, b bus.Bus, kind kinds.Name) (last events.Delta) {
	t.Helper()
	if log := LogOfKind(t, b, kind); len(log) > 0 {
		last = log[len(log)-1]
	}
	return last
}

// InTime fails unless got has exactly the wanted times.
func InTime(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
