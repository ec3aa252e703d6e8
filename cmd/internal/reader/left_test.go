package reader

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestHistoryAndVerifyTellWhatWasLeftOut: both report versions that were left out, which are no
// damage.
func TestHistoryAndVerifyTellWhatWasLeftOut(t *testing.T) {
	w := readertest.NewWorld(t, commands)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "flooded"}}
	for _, left := range []events.Left{{}, {Versions: 12, Bytes: 34567}} {
		d, err := w.Write(kinds.ConfigMaps.Kind, m, "kubectl")
		readertest.Must(t, err)
		d.Left = left
		_, err = w.Say(t.Context(), d)
		readertest.Must(t, err)
	}
	if said, err := w.Millrace("history", "cm/flooded", "-n=feat"); err != nil || !strings.Contains(said, "LEFT OUT  12 versions of 34567 bytes") {
		t.Errorf("history: %v\n%s", err, said)
	}
	if said, _ := w.Millrace("verify"); !strings.Contains(said, "12 versions were left out") {
		t.Errorf("verify:\n%s", said)
	}
}
