package standing_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/subject"
)

// hold stores a turn of the ReplicaSet's controller that wants to delete some pods, and its outcome.
func (w *world) hold(name string, lane events.Lane, results ...events.Result) {
	w.Helper()
	key := events.Key{Namespace: "shop", Name: name}
	t := events.Turn{Controller: replicaSets, Key: key, Lane: lane, Because: "too many pods", Now: time.Now()}
	if name != "nameless" {
		t.Kind, t.UID, t.Generation = "replicasets.apps", "u-1", 7
	}
	for i := range results {
		t.Commands = append(t.Commands, events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "shop", Name: fmt.Sprint("pod-", i)})
		results[i].Command, results[i].Ref = i, t.Commands[i].Ref()
	}
	m, err := events.EncodeJSON(t, events.Trace{})
	w.Must(err)
	m.Subject = subject.Turn(replicaSets, lane, key)
	id := fmt.Sprint(name, lane, len(results), results[0].Status)
	sequence, err := w.Bus.Put(w.Context(), m, id)
	w.Must(err)
	m, err = events.EncodeJSON(events.Outcome{Controller: replicaSets, Key: key, Lane: lane, Turn: sequence, Results: results, At: time.Now()}, events.Trace{})
	w.Must(err)
	m.Subject = subject.Outcome(replicaSets, lane, key)
	_, err = w.Bus.Put(w.Context(), m, id)
	w.Must(err)
}

func TestHeldKeysAreShown(t *testing.T) {
	tell(t, func(w *world) {
		applied := events.Result{Status: events.Applied}
		held := func(limit, reason string) events.Result {
			return events.Result{Status: events.Refused, Code: events.HeldCode, Reason: reason, Cause: limit, Message: "because of " + limit}
		}
		w.hold("old", events.LaneWrite, held("pods", events.Held))
		time.Sleep(3 * time.Minute) // virtual
		w.hold("web", events.LaneWrite, applied, held("pods", events.Held), held("pods", events.Held), held("more", events.Denied))
		w.hold("nameless", events.LaneWrite, held("pods", events.Held))
		w.hold("reports", events.LaneStatus, held("pods", events.Held))
		w.hold("busy", events.LaneWrite, events.Result{Status: events.Refused, Code: 429, Reason: "TooManyRequests"})
		w.hold("done", events.LaneWrite, held("pods", events.Held))
		w.hold("done", events.LaneWrite, applied)

		got, err := w.standing.Held(w.Context(), time.Now())
		w.Must(err)
		want := []standing.Held{
			{Key: events.Key{Namespace: "shop", Name: "nameless"}, Writes: []standing.HeldWrites{{Limit: "pods", Writes: 1, First: "delete pods:shop/pod-0", Message: "because of pods"}}},
			{
				Key: events.Key{Namespace: "shop", Name: "web"}, Object: events.Ref{Kind: "replicasets.apps", Namespace: "shop", Name: "web"}, UID: "u-1", Generation: 7,
				Writes: []standing.HeldWrites{
					{Limit: "pods", Writes: 2, First: "delete pods:shop/pod-1", Message: "because of pods"},
					{Limit: "more", Denied: true, Writes: 1, First: "delete pods:shop/pod-3", Message: "because of more"},
				},
			},
		}
		for i := range got {
			if got[i].At.IsZero() || got[i].Turn == 0 || got[i].Because != "too many pods" || got[i].Controller != replicaSets {
				w.Errorf("held is %+v", got[i])
			}
			got[i].At, got[i].Turn, got[i].Because, got[i].Controller = time.Time{}, 0, "", ""
		}
		if lines, all := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); lines != all {
			w.Errorf("held are\n%s, want\n%s", strings.ReplaceAll(lines, "} {", "}\n{"), strings.ReplaceAll(all, "} {", "}\n{"))
		}
	})
}
