package standing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Retention covers every stream: of each kind, then of each controller, then of the shadows.
func TestHowMuchIsKept(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(pod("a"), "x", nil)
		w.Compared()
		kept, err := w.standing.Retention(w.Context())
		w.Must(err)
		var got []string
		for _, k := range kept {
			got = append(got, fmt.Sprintf("%s %s %d", k.Stream, k.Of, k.Messages))
		}
		var want []string
		for _, kind := range []kinds.Name{"deployments.apps", "pods", "replicasets.apps"} {
			n := map[kinds.Name]int{"pods": 1}[kind]
			want = append(want, fmt.Sprintf("%s %s %d", subject.LogStream(kind), kind, n))
		}
		for _, c := range []string{deployments, replicaSets} {
			want = append(want, fmt.Sprintf("%s %s 0", subject.TurnStream(c), c), fmt.Sprintf("%s %s 0", subject.OutcomeStream(c), c))
		}
		want = append(want, fmt.Sprintf("%s %s 4", subject.ShadowStream(replicaSets), replicaSets), subject.WakeStream+"  0")
		if !slices.Equal(got, want) {
			w.Errorf("kept is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
