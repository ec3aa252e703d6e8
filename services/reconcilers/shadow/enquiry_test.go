package shadow

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// What KCM does after it has asked the API server cannot be foreseen by who asks
// nothing: it is no difference.
func TestWhatKCMHasAskedIsUnseen(t *testing.T) {
	for _, asks := range []bool{false, true} {
		s, want := begin(), events.KCMOnly
		if asks {
			d := description
			d.Writes = append(slices.Clip(d.Writes), reconcile.Write{Verb: events.VerbAsk, Kind: kinds.Namespaces.Name, Subresource: events.SubContents})
			s.Matcher, want = New(d, Settings{}), events.Unseen
		}
		s.wants()
		expect(t, "a report of what is not wanted", s.reports(told, counts(3, 1)), want)
	}
}
