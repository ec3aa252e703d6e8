package record_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/subject"
)

func TestTailShowsWhatIsWanted(t *testing.T) {
	tell(t, func(w *world) {
		var mu sync.Mutex
		heard := map[string][]string{}
		ctx, stop := context.WithCancel(w.Context())
		for name, f := range map[string]record.Filter{
			"all": {}, "pods": {Kinds: []kinds.Name{"pods"}}, "sets": {Controllers: []string{replicaSets}}, "elsewhere": {Namespace: "elsewhere"},
		} {
			go func() {
				if err := w.record.Tail(ctx, f, func(h record.Happening) error {
					mu.Lock()
					defer mu.Unlock()
					heard[name] = append(heard[name], h.Noun)
					return nil
				}); err != nil {
					w.Errorf("tail of %s: %v", name, err)
				}
			}()
		}
		synctest.Wait()
		w.scaled()
		synctest.Wait()
		stop()
		synctest.Wait()
		for name, want := range map[string]string{
			"all": "delta delta delta delta delta delta outcome outcome outcome turn turn turn", "pods": "delta delta", "sets": "outcome turn", "elsewhere": "",
		} {
			slices.Sort(heard[name])
			if got := strings.Join(heard[name], " "); got != want {
				w.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		if err := w.record.Tail(w.Context(), record.Filter{Controllers: []string{"absent"}}, nil); !errors.Is(err, record.ErrNotThere) {
			w.Errorf("of an absent controller: %v", err)
		}
	})
}

func TestParkedKeysAreShownWithWhatCameSince(t *testing.T) {
	tell(t, func(w *world) {
		for _, name := range []string{"broken", "mended"} {
			key := events.Key{Namespace: "shop", Name: name}
			m, err := events.EncodeJSON(events.Turn{Controller: replicaSets, Key: key, Lane: events.LanePark, Because: "panic: " + name}, events.Trace{})
			w.must(err)
			m.Subject = subject.Turn(replicaSets, events.LanePark, key)
			_, err = w.bus.Put(w.Context(), m, name)
			w.must(err)
		}
		w.decide(replicaSets, events.Ref{Kind: "replicasets.apps", Namespace: "shop", Name: "mended"}, "too few Pods", nil)
		got, err := w.record.Parked(w.Context())
		w.must(err)
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
			_ = w.bus.Consume(ctx, subject.LogStream("pods"), 1, func() uint64 { return 1 }, func([]events.Message) error { return nil })
		}()
		w.is(pod("a"), "x", nil)
		w.is(pod("b"), "x", nil)
		synctest.Wait()
		lags, err := w.record.Lags(w.Context())
		w.must(err)
		at := slices.IndexFunc(lags, func(l record.Lag) bool { return l.Stream == "EV_pods" && l.Consumer != "" })
		if at < 0 || lags[at].Stream != "EV_pods" || lags[at].Behind != 1 || lags[at].Answered != 1 || lags[at].Last != 2 {
			w.Errorf("the lags are %+v", lags)
		}
		s, err := w.record.Standing(w.Context(), kinds.Pods.Kind, pod("b"), replicaSets)
		w.must(err)
		if s.Looked == nil || s.Looked.Answered != 1 || s.Looked.Position != 2 || s.Looked.Pending != 1 {
			w.Errorf("it has looked at %+v", s.Looked)
		}
		stop()
		synctest.Wait()
		lags, err = w.record.Lags(w.Context())
		w.must(err)
		if slices.ContainsFunc(lags, func(l record.Lag) bool { return l.Stream == "EV_pods" && l.Consumer != "" }) {
			w.Errorf("of readers that have ended the lags are %+v", lags)
		}
	})
}
