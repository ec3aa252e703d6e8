package shadow

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// If the controller asks the API server, the shadow, which asks nothing, cannot foresee
// what KCM does after the answer: the write is unseen, and no unexplained difference.
func TestWhatKCMHasAskedIsUnseen(t *testing.T) {
	for _, asks := range []bool{false, true} {
		s, want := begin(), report.KCMOnly
		if asks {
			d := description
			d.Writes = append(slices.Clip(d.Writes), reconcile.Write{Verb: events.VerbAsk, Kind: kinds.Namespaces.Name, Subresource: query.SubContents})
			s.Matcher, want = New(d, Settings{}), report.Unseen
		}
		s.wants()
		expect(t, "a report of what is not wanted", s.reports(told, counts(3, 1)), want)
	}
}
