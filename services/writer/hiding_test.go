package writer

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestAWriterHidesWhatTheWatcherHides: the rules are the watcher's flag, and a writer in
// a process of its own knows them from the record. Where the record does not say, as one
// of an older watcher, values may be hidden.
func TestAWriterHidesWhatTheWatcherHides(t *testing.T) {
	t.Parallel()
	b, now := memory.New(memory.Options{}), testingclock.NewFakePassiveClock(time.Now())
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	appender, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	mark := func(says events.Redaction) func() {
		return func() {
			m := events.EncodeDelta(events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "1", At: now.Now(), Redaction: says})
			m.Subject = subject.Mark(kinds.Pods.Name)
			if err := appender.Append(t.Context(), events.Seal(m)); err != nil {
				t.Fatal(err)
			}
			if err := appender.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	hides := hiding(b, now)
	if hides(t.Context(), kinds.Deployments.Name) {
		t.Error("of a kind without a record something is hidden")
	}
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"a record in which nothing is said yet", func() {}, true},
		{"a watcher without rules of it", mark(events.Unredacted), false},
		{"one with rules", mark(events.Redacted), true},
		{"one that does not say", mark(""), true},
	} {
		before := hides(t.Context(), kinds.Pods.Name)
		step.do()
		now.SetTime(now.Now().Add(redactionAge - 1))
		if hides(t.Context(), kinds.Pods.Name) != before {
			t.Errorf("%s: the record was asked again at once", step.what)
		}
		now.SetTime(now.Now().Add(1))
		if got := hides(t.Context(), kinds.Pods.Name); got != step.want {
			t.Errorf("%s: hides %t, want %t", step.what, got, step.want)
		}
	}
}
