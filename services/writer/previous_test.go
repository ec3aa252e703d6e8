package writer

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
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
				m := events.EncodeDelta(d)
				m.Subject = subject.Mark(d.Kind)
				must(log.Append(t.Context(), events.Seal(m)))
			}
			must(log.Flush(t.Context()))
			known, err := previousObjects(b)(t.Context(), events.Ref{Kind: kinds.Pods.Name, Namespace: "ns", Name: "web-0"}, c.seen)
			must(err)
			if known.Hidden != c.want {
				t.Errorf("hidden: %t, want %t", known.Hidden, c.want)
			}
		})
	}
}
