package record_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestHistorySaysWhatWasLeftOut between its versions.
func TestHistorySaysWhatWasLeftOut(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		late := w.Delta(web, events.Is, "kubectl", replicas(7))
		late.Sync, late.Proven, late.Left = true, true, events.Left{Versions: 12, Bytes: 34567}
		w.Say(late)
		h, err := w.record.History(w.Context(), kinds.Deployments.Kind, web, 2)
		w.Must(err)
		if was, is := h.Versions[0].Left, h.Versions[1].Left; was != nil || is == nil || *is != late.Left {
			w.Errorf("the history says that %+v and %+v were left out, want nothing and %+v", was, is, late.Left)
		}
		if by := h.Versions[1].By; by.Manager != "kubectl" || by.Unknown != "" {
			w.Errorf("whose entry alone has changed since: %+v", by)
		}
	})
}
