package standing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/subject"
)

func TestStandingSaysWhatIsAwaited(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		turn := w.Decide(replicaSets, webSet, "too few Pods", []events.Command{create(pod("c"))})
		w.Must(w.Bus.Schedule(w.Context(), events.Wake{Controller: replicaSets, Key: events.Key{Namespace: "shop", Name: "web-1"}, At: time.Now().Add(time.Hour), Because: "it will be available"}))
		s, err := w.standing.Standing(w.Context(), kinds.ReplicaSets.Kind, webSet, replicaSets)
		w.Must(err)
		if len(s.Turns) != 1 || s.Turns[0].Turn != turn || s.Turns[0].Outcome != nil || s.Wake == nil || s.Wake.Because != "it will be available" || s.Object == nil {
			w.Errorf("the standing is %+v, want the turn without an outcome, and the wake", s)
		}
		if _, err := w.standing.Standing(w.Context(), kinds.ReplicaSets.Kind, webSet, "absent"); !errors.Is(err, record.ErrNotThere) || !strings.Contains(err.Error(), replicaSets) {
			w.Errorf("the standing with an absent controller: %v, want an error that names the known one", err)
		}
	})
}

// A turn from before the key was parked is not a later one, and the outcome of another turn is
// not that of the last.
func TestHowAKeyStands(t *testing.T) {
	tell(t, func(w *world) {
		set := func(name string) events.Ref { return events.Ref{Kind: webSet.Kind, Namespace: "shop", Name: name} }
		for _, c := range []string{replicaSets, deployments} {
			for _, name := range []string{"z", "a"} {
				w.Decide(c, set(name), "before "+name, nil)
				m, err := events.EncodeJSON(events.Turn{Controller: c, Key: events.Key{Namespace: "shop", Name: name}, Lane: events.LanePark, Because: "panic"}, events.Trace{})
				w.Must(err)
				m.Subject = subject.Turn(c, events.LanePark, events.Key{Namespace: "shop", Name: name})
				_, err = w.Bus.Put(w.Context(), m, c+name)
				w.Must(err)
			}
		}
		parked, err := w.standing.Parked(w.Context())
		w.Must(err)
		var got []string
		for _, p := range parked {
			got = append(got, fmt.Sprintf("%s %v %q", p.Controller, p.Key, p.Since))
		}
		want := []string{deployments + ` shop/a ""`, deployments + ` shop/z ""`, replicaSets + ` shop/a ""`, replicaSets + ` shop/z ""`}
		if !slices.Equal(got, want) {
			w.Errorf("set aside are %v, want %v", got, want)
		}
		made := w.Delta(webSet, events.Is, "x", nil)
		w.Say(made)
		w.Done(replicaSets, webSet, w.Decide(replicaSets, webSet, "first", nil), made)
		for _, c := range []struct {
			because string
			has     bool
		}{{"first", true}, {"second", false}} {
			if !c.has {
				w.Decide(replicaSets, webSet, c.because, nil)
			}
			s, err := w.standing.Standing(w.Context(), kinds.ReplicaSets.Kind, webSet, replicaSets)
			w.Must(err)
			if len(s.Turns) != 1 || s.Turns[0].Because != c.because || (s.Turns[0].Outcome != nil) != c.has {
				w.Errorf("behind the %s turn: %+v", c.because, s.Turns)
			}
		}
		lags, err := w.standing.Lags(w.Context())
		w.Must(err)
		at := slices.IndexFunc(lags, func(l standing.Lag) bool { return l.Stream == subject.TurnStream(replicaSets) })
		if at < 0 || lags[at].Messages != 6 || lags[at].Last != 6 || !lags[at].Stored.Equal(time.Now()) {
			w.Errorf("the turns stand at %+v", lags)
		}
	})
}

func TestParkedKeysAreShownWithWhatCameSince(t *testing.T) {
	tell(t, func(w *world) {
		for _, name := range []string{"broken", "mended"} {
			key := events.Key{Namespace: "shop", Name: name}
			m, err := events.EncodeJSON(events.Turn{Controller: replicaSets, Key: key, Lane: events.LanePark, Because: "panic: " + name}, events.Trace{})
			w.Must(err)
			m.Subject = subject.Turn(replicaSets, events.LanePark, key)
			_, err = w.Bus.Put(w.Context(), m, name)
			w.Must(err)
		}
		w.Decide(replicaSets, events.Ref{Kind: "replicasets.apps", Namespace: "shop", Name: "mended"}, "too few Pods", nil)
		got, err := w.standing.Parked(w.Context())
		w.Must(err)
		var lines []string
		for _, p := range got {
			lines = append(lines, fmt.Sprintf("%s %v %s %s", p.Controller, p.Key, p.Reason, p.Since))
		}
		want := replicaSets + " shop/broken panic: broken |" + replicaSets + " shop/mended panic: mended too few Pods"
		if strings.Join(lines, "|") != want {
			w.Errorf("set aside are\n%s, want\n%s", strings.Join(lines, "|"), want)
		}
	})
}

func TestLagsAreOfReadersAtWork(t *testing.T) {
	tell(t, func(w *world) {
		ctx, stop := context.WithCancel(w.Context())
		go func() {
			_ = w.Bus.Consume(ctx, subject.LogStream("pods"), 1, func() uint64 { return 1 }, func([]events.Message) error { return nil })
		}()
		w.Is(pod("a"), "x", nil)
		w.Is(pod("b"), "x", nil)
		synctest.Wait()
		lags, err := w.standing.Lags(w.Context())
		w.Must(err)
		at := slices.IndexFunc(lags, func(l standing.Lag) bool { return l.Stream == "EV_pods" && l.Consumer != "" })
		if at < 0 || lags[at].Stream != "EV_pods" || lags[at].Behind != 1 || lags[at].Answered != 1 || lags[at].Last != 2 {
			w.Errorf("the lags are %+v", lags)
		}
		s, err := w.standing.Standing(w.Context(), kinds.Pods.Kind, pod("b"), replicaSets)
		w.Must(err)
		if s.Looked == nil || s.Looked.Answered != 1 || s.Looked.Position != 2 || s.Looked.Pending != 1 {
			w.Errorf("the last look is %+v, want up to 1 of 2, with 1 pending", s.Looked)
		}
		stop()
		synctest.Wait()
		lags, err = w.standing.Lags(w.Context())
		w.Must(err)
		if slices.ContainsFunc(lags, func(l standing.Lag) bool { return l.Stream == "EV_pods" && l.Consumer != "" }) {
			w.Errorf("readers that have ended are in the lags %+v", lags)
		}
	})
}
