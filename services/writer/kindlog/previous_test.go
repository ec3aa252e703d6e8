package kindlog

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/internal/podlog"
	"github.com/millrace/millrace/services/writer/plan"
)

// TestHidden: an object may have been created and deleted unseen since a decision only in a gap
// after it, or if the log is not the one that the decision had read.
func TestHidden(t *testing.T) {
	t.Parallel()
	gap := func(before uint64) events.Delta {
		return events.Delta{Op: events.Gap, ResourceVersion: "9", Before: events.Place{Known: true, Sequence: before}}
	}
	mark := func(before uint64) events.Delta {
		return events.Delta{Op: events.Mark, ResourceVersion: "9", Before: events.Place{Known: true, Sequence: before}}
	}
	for name, c := range map[string]struct {
		log  []events.Delta
		seen uint64
		want bool
	}{
		"no gap at all":                    {[]events.Delta{mark(0), mark(0)}, 1, false},
		"a gap before the decision":        {[]events.Delta{gap(0), mark(1), mark(1)}, 1, false},
		"a gap behind the decision":        {[]events.Delta{mark(0), gap(0), mark(2)}, 1, true},
		"a gap, and nothing behind it yet": {[]events.Delta{mark(0), gap(0)}, 1, true},
		"decided on the gap itself":        {[]events.Delta{mark(0), gap(0)}, 2, false},
		"a mark of an older version":       {[]events.Delta{{Op: events.Mark, ResourceVersion: "9"}}, 1, true},
		"a log that was made anew":         {[]events.Delta{mark(0)}, 2, true},
		"no mark":                          {nil, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			b := memory.New(memory.Options{})
			must(b.EnsureKind(t.Context(), kinds.Pods.Kind))
			log, err := b.Append(t.Context(), kinds.Pods.Name)
			must(err)
			for _, d := range c.log {
				d.Kind = kinds.Pods.Name
				must(log.Append(t.Context(), events.Seal(subject.Message(d))))
			}
			must(log.Flush(t.Context()))
			known, err := PreviousObjects(b)(t.Context(), events.Ref{Kind: kinds.Pods.Name, Namespace: "ns", Name: "web-0"}, c.seen)
			must(err)
			if known.Hidden != c.want {
				t.Errorf("hidden: %t, want %t", known.Hidden, c.want)
			}
		})
	}
}

// What the record has on a name: up to which version it is complete, since when, and whether the
// name ever had an object.
func TestWhatIsKnownOfAName(t *testing.T) {
	b := podlog.Recorded(t, podlog.MarkOf("3", 0), podlog.PodIs("a", "5"), podlog.PodIs("b", "7"))
	for what, c := range map[string]struct {
		ref  events.Ref
		seen uint64
		want plan.Known
	}{
		"one that was there":  {podlog.PodRef("a"), 2, plan.Known{Told: "7", Since: "5", Created: true}},
		"one that never was":  {podlog.PodRef("c"), 3, plan.Known{Told: "7", Since: "7"}},
		"before all":          {podlog.PodRef("c"), 0, plan.Known{Told: "7"}},
		"beyond the log":      {podlog.PodRef("c"), 9, plan.Known{Told: "7", Hidden: true}},
		"of an unknown kind ": {events.Ref{Kind: "nodes", Name: "n"}, 2, plan.Known{Unwatched: true}},
	} {
		if known, err := PreviousObjects(b)(t.Context(), c.ref, c.seen); err != nil || known != c.want {
			t.Errorf("%s: %+v, %v; want %+v", what, known, err, c.want)
		}
	}
	if known, err := PreviousObjects(podlog.Recorded(t, podlog.PodIs("a", "5")))(t.Context(), podlog.PodRef("c"), 1); err != nil || known != (plan.Known{Told: "5", Hidden: true}) {
		t.Errorf("a log with one object: %+v, %v; want it told up to 5, and the rest hidden", known, err)
	}
	if it, err := mayLackChanges(t.Context(), garbled(b), "pods", 9); err != nil || !it {
		t.Errorf("behind a mark that cannot be read something is hidden: %t, %v", it, err)
	}
	log := subject.LogStream("pods")
	for what, a := range map[string]bus.Bus{
		"where the log stands": bustest.Wrap(b).Fail(bustest.StreamState, away), "the last of a name": bustest.Wrap(b).Fail(bustest.Last, away, log),
		"the end of the log": bustest.Wrap(b).Fail(bustest.At, away, log), "the message that the decision saw": holed(b, 2),
	} {
		if known, err := PreviousObjects(a)(t.Context(), podlog.PodRef("a"), 2); !errors.Is(err, away) || !strings.Contains(err.Error(), "in the record") || known != (plan.Known{}) {
			t.Errorf("%s is not told: %+v, %v", what, known, err)
		}
	}
}

// The version at a sequence of a log is that of the nearest of a few messages before it.
func TestTheVersionAtAPlaceOfALog(t *testing.T) {
	b := podlog.Recorded(t, podlog.PodIs("a", "5"))
	for sequence, want := range map[uint64]string{0: "", 1: "5", 4: "5", 5: ""} {
		if got, err := versionAt(t.Context(), b, "pods", sequence); err != nil || got != want {
			t.Errorf("at %d: %q, %v, want %q", sequence, got, err, want)
		}
	}
	sync := podlog.PodIs("a", "5")
	sync.Kind, sync.Sync = "pods", true
	whole := subject.Message(sync)
	for what, m := range map[string]events.Message{
		"of a list": events.Seal(whole), "of another subject": {Subject: "x"}, "that cannot be read": {Subject: subject.Delta(sync.Ref)},
	} {
		if got := completeUpTo(m); got != "" {
			t.Errorf("a message %s tells of version %q", what, got)
		}
	}
}
