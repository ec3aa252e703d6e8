package writer_test

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer"
)

// The writer compares a turn's objects with the state, with one lookup per kind. An object that is
// gone or cannot be read is unknown, and its command is stale.
func TestWhatATurnChangesIsHeldAgainstTheState(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		broken error
		known  map[string]types.UID
	}{
		"as it is":            {nil, map[string]types.UID{"web-1": "u1", "web-2": "u2", "web-3": "", "web-4": ""}},
		"the state is silent": {errors.New("no answer"), map[string]types.UID{"web-1": "", "web-2": "", "web-3": "", "web-4": ""}},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScene(t)
			s.must(s.bus.EnsureKind(t.Context(), kinds.ReplicaSets.Kind))
			stand := func(name string, uid types.UID, op events.Op) {
				body, err := kinds.Encode(kinds.ReplicaSets.Kind, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}})
				s.must(err)
				s.delta(events.Delta{Ref: events.Ref{Name: name}, Op: op, UID: uid, ResourceVersion: "5", ContentType: kinds.Protobuf, Body: body, Form: kinds.Full})
			}
			stand("web", "rs", events.Is)
			stand("web-1", "u1", events.Is)
			stand("web-2", "u2", events.Is)
			stand("web-3", "u3", events.Gone)
			line := bustest.Wrap(s.bus).Fail(bustest.LastOf, c.broken)
			s.writer(func(w *writer.Config) {
				w.Bus = line
				w.Controllers[0].Fits = func(_ events.Turn, _ func() metav1.Object, read func(events.Ref) metav1.Object) func(events.Command) error {
					return func(command events.Command) error {
						uid := types.UID("")
						if obj := read(command.Ref()); obj != nil {
							uid = obj.GetUID()
						}
						if uid != c.known[command.Name] {
							t.Errorf("%s is held against uid %q", command.Name, uid)
						}
						return events.ErrSuperseded
					}
				}
			})
			var updates []events.Command
			for _, name := range []string{"web-1", "web-2", "web-3", "web-4"} {
				updates = append(updates, events.Command{
					Verb: events.VerbUpdate, Kind: kinds.ReplicaSets.Name, Version: "v1", Namespace: "ns", Name: name,
					If: &events.If{UID: "u", ResourceVersion: "5"}, Body: []byte(`{}`),
				})
			}
			s.store("web", seen("rs", "5", 2), updates...)
			o := s.outcome("web")
			for i, r := range o.Results {
				if r.Status != events.Refused || r.Reason != "Stale" {
					t.Errorf("command %d: %+v", i, r)
				}
			}
			if asked := line.Count(bustest.LastOf); asked != 1 || len(o.Results) != len(updates) {
				t.Errorf("the state was asked %d times for %d results", asked, len(o.Results))
			}
		})
	}
}
