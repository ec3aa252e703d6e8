package kindlog

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/internal/podlog"
)

// TestAWriterHidesWhatTheWatcherHides: the rules are the watcher's flag, and a writer in its own
// process reads from the record whether they apply to a kind. If the record does not say, as one
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
			m := subject.Message(events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "1", At: now.Now(), Redaction: says})
			if err := appender.Append(t.Context(), events.Seal(m)); err != nil {
				t.Fatal(err)
			}
			if err := appender.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	hides := Hides(b, now)
	if hides(t.Context(), kinds.Deployments.Name) {
		t.Error("a kind without a log is redacted")
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
		now.SetTime(now.Now().Add(10*time.Second - 1))
		if hides(t.Context(), kinds.Pods.Name) != before {
			t.Errorf("%s: the record was asked again at once", step.what)
		}
		now.SetTime(now.Now().Add(1))
		if got := hides(t.Context(), kinds.Pods.Name); got != step.want {
			t.Errorf("%s: hides %t, want %t", step.what, got, step.want)
		}
	}
}

// TestWhatIsHiddenIsAskedAgain: if the record could not be read, the writer reads it again; until
// then values may be hidden. Of an unknown kind nothing is hidden, whatever the bus says.
func TestWhatIsHiddenIsAskedAgain(t *testing.T) {
	t.Parallel()
	unredacted := podlog.MarkOf("3", 0)
	unredacted.Redaction = events.Unredacted
	b := podlog.Recorded(t, unredacted)
	broken := bustest.Wrap(b).Fail(bustest.Last, away)
	torn := garbled(b)
	for what, c := range map[string]struct {
		bus  bus.Bus
		mend func()
	}{"the bus is away": {broken, func() { broken.Fail(bustest.Last, nil) }}, "the mark cannot be read": {torn, func() { torn.OnLast = nil }}} {
		hides := Hides(c.bus, testingclock.NewFakePassiveClock(time.Now()))
		if !hides(t.Context(), kinds.Pods.Name) {
			t.Errorf("%s: nothing is hidden", what)
		}
		if hides(t.Context(), "widgets.e") {
			t.Errorf("%s: a kind that does not exist is redacted", what)
		}
		if c.mend(); hides(t.Context(), kinds.Pods.Name) {
			t.Errorf("%s: the log is not read again at once", what)
		}
	}
}
