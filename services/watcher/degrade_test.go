package watcher

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

func every(c *Config) { c.Every = true }

func TestAListIsReadInPagesWhereItIsNotStreamed(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.Break(func(r apiservertest.Request) (f apiservertest.Fault) {
		if r.Query.Has("sendInitialEvents") {
			f.Code = http.StatusUnprocessableEntity
		}
		return f
	})
	s.PutPod("a", 0)
	service, _ := start(t, s, b, "one")
	watchertest.Eventually(t, b, "is a")
	s.RemovePod("a")
	watchertest.Eventually(t, b, "is a", "gone a")
	if got := s.Listed(); got != 1 {
		t.Errorf("%d whole lists, want 1", got)
	}
	watchertest.Until(t, service.Synced)
}

func TestARefusedKindDegradesAloneAndRecovers(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.Serve(watchertest.Widgets)
	s.Refuse("widgets", http.StatusForbidden)
	s.Edit("widgets", "w", func(*corev1.Pod) {})
	service, _ := start(t, s, b, "one", every)
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a")
	degraded := func(kind string) float64 {
		return metrictest.Collect(t, service.Collectors()...).Sum("millrace_watcher_degraded", "kind="+kind)
	}
	watchertest.Until(t, func() bool {
		err := service.checkSynced()
		return err != nil && strings.Contains(err.Error(), "widgets.example.com") && degraded("widgets.example.com") == 1
	})
	watchertest.Until(t, func() bool { return service.Checks()["api"]() == nil }) // one refused kind does not fail it
	if all := service.unwatched(time.Now().Add(report.StallAfter)); len(all) != 1 || all[0].Kind != "widgets.example.com" || all[0].Reason == "" {
		t.Errorf("the kinds that cannot be watched are %+v, want widgets with a reason", all)
	}
	if all := service.unwatched(time.Now()); len(all) > 0 {
		t.Errorf("after a moment the kinds that cannot be watched are %+v, want none", all)
	}
	watchertest.Until(t, func() bool { return degraded("pods") == 0 })
	s.Break(nil)
	watchertest.Until(t, func() bool {
		return fmt.Sprint(watchertest.Ops(watchertest.LogOfKind(t, b, "widgets.example.com"))) == "[is w mark]"
	})
	watchertest.Until(t, service.Synced)
	watchertest.Until(t, func() bool { return degraded("widgets.example.com") == 0 })
}

func TestTooManyRequestsAreAskedAgainAsLateAsTold(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	var refused atomic.Int64
	s.Break(func(r apiservertest.Request) (f apiservertest.Fault) {
		if strings.HasSuffix(r.Path, "/pods") && refused.CompareAndSwap(0, 1) {
			f.Code, f.RetryAfter = http.StatusTooManyRequests, 1
		}
		return f
	})
	start(t, s, b, "one")
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a")
	asked := s.Asked("pods")
	if took := asked[1].Sub(asked[0]); refused.Load() != 1 || took < 900*time.Millisecond {
		t.Errorf("asked again after %v, not after the second it was told; refused was %d", took, refused.Load())
	}
}

func TestTheWatchGoesOnSoonAfterAnOutage(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	service, _ := start(t, s, b, "one")
	watching(t, service) // or the list would be begun anew
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a")
	address, handler := s.Listener.Addr().String(), s.Config.Handler
	s.CutWatches()
	s.CloseClientConnections()
	s.Listener.Close()
	watchertest.Until(t, func() bool { return service.checkSynced() != nil })
	s.RemovePod("a")
	again := &http.Server{Handler: handler}
	listener := listen(t, address)
	go func() { _ = again.Serve(listener) }()
	t.Cleanup(func() { s.CutWatches(); again.Close() })
	const look = 10 * time.Millisecond
	looks := 0 // while this process stands still, nothing is counted
	for ; len(watchertest.LogOf(t, b)) < 3; looks++ {
		if time.Sleep(look); time.Duration(looks)*look >= farPause/2 {
			t.Fatalf("the watch has not gone on after %v", time.Duration(looks)*look)
		}
	}
	watchertest.Eventually(t, b, "is a", "gone a")
	if got := s.Listed(); got != 1 {
		t.Errorf("%d lists, want 1: an outage loses no position", got)
	}
}

func TestKindsComeAndGoAndComeBack(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	start(t, s, b, "one", every)
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a")
	s.Edit("widgets", "w", func(*corev1.Pod) {})
	s.Serve(watchertest.Widgets)
	told := func() string { return fmt.Sprint(watchertest.Ops(watchertest.LogOfKind(t, b, "widgets.example.com"))) }
	watchertest.Until(t, func() bool { return told() == "[is w mark]" })
	s.Unserve(watchertest.Widgets)
	s.CutWatches()
	watchertest.Until(t, func() bool { return told() == "[is w mark gone w mark]" })
	s.Serve(watchertest.Widgets)
	watchertest.Until(t, func() bool { return strings.HasPrefix(told(), "[is w mark gone w mark is w gap mark") })
}

// TestTheStreamsOfARetiredKindGo: the watcher removes them when everything in them has expired, and
// not before.
func TestTheStreamsOfARetiredKindGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = time.Minute
		s := watchertest.Offline(t)
		b := memory.New(memory.Options{LogAge: age})
		service, _ := start(t, s, b, "one", every)
		s.Edit("widgets", "w", func(*corev1.Pod) {})
		s.Serve(watchertest.Widgets)
		stream := subject.LogStream("widgets.example.com")
		told := func() string {
			return strings.Join(watchertest.Ops(watchertest.LogOfKind(t, b, "widgets.example.com")), " ")
		}
		time.Sleep(10 * time.Second) // virtual, as all of them here
		if got := told(); got != "is w mark" {
			t.Fatalf("at first the log tells %q", got)
		}
		s.Unserve(watchertest.Widgets)
		s.CutWatches()
		time.Sleep(goneAfter + 10*time.Second)
		if got := told(); !strings.HasSuffix(got, "gone w mark") {
			t.Fatalf("when the kind is served no more its log is %q, want it to end with the deletion and a mark", got)
		}
		ended := watchertest.Standing(t, b, stream).Last
		time.Sleep(age - 15*time.Second)
		service.wakeUp() // as its reminder does, later
		time.Sleep(time.Second)
		if at := watchertest.Standing(t, b, stream); at.Last != ended {
			t.Errorf("before everything has expired it ends with %d, want %d", at.Last, ended)
		}
		time.Sleep(30 * time.Second)
		service.wakeUp()
		time.Sleep(time.Second)
		if _, err := b.StreamState(t.Context(), stream); !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("when all has expired the log of the kind is still there: %v", err)
		}
		s.Serve(watchertest.Widgets)
		time.Sleep(15 * time.Second)
		if got := told(); got != "is w mark" {
			t.Errorf("when the kind is served again its log is %q, want \"is w mark\"", got)
		}
	})
}

func TestADocumentThatIsNotUpToDateRetiresNothing(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.Serve(watchertest.Widgets)
	s.Edit("widgets", "w", func(*corev1.Pod) {})
	service, stop := start(t, s, b, "one", every)
	watchertest.Until(t, func() bool {
		return fmt.Sprint(watchertest.Ops(watchertest.LogOfKind(t, b, "widgets.example.com"))) == "[is w mark]"
	})
	stop() // it would sweep beside us
	stale := watchertest.Widgets
	stale.Stale = true
	s.Serve(stale)
	service.findKinds(t.Context())
	want, catalog, _ := service.wanted()
	if contains(want, "widgets.example.com") || !catalog.Silent["example.com"] {
		t.Fatalf("the stale group gave %v, silent %v", want, catalog.Silent)
	}
	service.endUnserved(t.Context(), want, catalog)
	if mine := service.fallsHere("widgets.example.com"); !mine || len(service.missing) != 0 {
		t.Errorf("%v count as missing, of a kind that is its own: %t", service.missing, mine)
	}
}

func TestDiscoveryIsReadOnceWhileNothingChanges(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	service, stop := start(t, s, b, "one", every)
	watchertest.Until(t, service.Synced)
	stop() // it would read what is new before us
	if _, fresh, err := service.source.Discover(t.Context()); fresh || err != nil {
		t.Errorf("the same catalog again: fresh %t, %v", fresh, err)
	}
	s.Serve(watchertest.Widgets)
	catalog, fresh, err := service.source.Discover(t.Context())
	if !fresh || err != nil || !catalog.Serves("widgets.example.com", "v1") || catalog.Serves("widgets.example.com", "v2") {
		t.Errorf("a new kind: fresh %t, %v, %v", fresh, catalog, err)
	}
}

func TestABackupBeginsANewEpoch(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]int{"the position is before ours": 0, "the position has passed ours": 20} {
		t.Run(name, func(t *testing.T) {
			s, b := watchertest.Serve(t), memory.New(memory.Options{})
			s.PutPod("a", 0)
			s.PutPod("lost", 0)
			_, stop := start(t, s, b, "one")
			watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 3 })
			s.PutPod("a", 0)
			watchertest.EventuallySorted(t, b, "is a", "is a", "is lost")
			stop()
			s.Restore(2) // a as it was first
			for i := range later {
				s.PutPod(fmt.Sprint("later-", i), 0)
			}
			start(t, s, b, "two")
			watchertest.Until(t, func() bool {
				return strings.HasSuffix(fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, b))), "gone lost gap mark]")
			})
			log := watchertest.LogOf(t, b)
			if newest := log[len(log)-1]; newest.Epoch != 1 {
				t.Errorf("the epoch is %d, want 1", newest.Epoch)
			}
			said := 0
			for _, d := range log {
				if d.Epoch == 1 && d.Op == events.Is {
					said++
				}
			}
			if want := 1 + later; said != want {
				t.Errorf("%d objects were said in the new epoch, want %d", said, want)
			}
		})
	}
}

// TestOneKindTellsTheOthersOfABackup: the storage has passed the position of pods, and changed
// their newest object again, before any watcher looked. Widgets have not changed since, so their
// watch finds out about the restore.
func TestOneKindTellsTheOthersOfABackup(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.Serve(watchertest.Widgets)
	s.PutPod("a", 0)
	_, stop := start(t, s, b, "one", every)
	watchertest.EventuallySorted(t, b, "is a")
	s.PutPod("lost", 0)
	s.PutPod("a", 0)
	watchertest.EventuallySorted(t, b, "is a", "is a", "is lost")
	for i := range 40 { // pods are at version 4, widgets far beyond
		s.Edit("widgets", fmt.Sprint("w-", i), func(*corev1.Pod) {})
	}
	watchertest.Until(t, func() bool {
		return strings.Contains(fmt.Sprint(watchertest.Ops(watchertest.LogOfKind(t, b, "widgets.example.com"))), "is w-39")
	})
	stop()
	s.Restore(2)
	for range 10 {
		s.PutPod("a", 0)
	}
	start(t, s, b, "two", every)
	watchertest.Until(t, func() bool { // each of them at its own time
		pods, widgets := watchertest.LogOf(t, b), watchertest.LogOfKind(t, b, "widgets.example.com")
		return pods[len(pods)-1].Epoch >= 1 && widgets[len(widgets)-1].Epoch >= 1 && strings.Contains(fmt.Sprint(watchertest.Ops(pods)), "gone lost gap")
	})
	for _, kind := range []kinds.Name{"pods", "widgets.example.com"} {
		if log := watchertest.LogOfKind(t, b, kind); log[len(log)-1].Epoch != 1 {
			t.Errorf("%s is in epoch %d, want one new one", kind, log[len(log)-1].Epoch)
		}
	}
}

func TestAKindThatIsWantedOtherwise(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	brief := kinds.Pods.Kind
	brief.Form = kinds.Metadata
	if err := b.EnsureKind(t.Context(), brief); err != nil {
		t.Fatal(err)
	}
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	if err := appender.Append(t.Context(), events.Message{Subject: subject.Mark("pods"), Header: events.EncodeDelta(events.Delta{Op: events.Mark}).Header}); err != nil {
		t.Fatal(err)
	}
	s.PutPod("a", 0)
	_, stop := start(t, s, b, "one") // metadata became full
	watchertest.Eventually(t, b, "is a")
	if form := watchertest.LogOf(t, b)[0].Form; form != kinds.Full {
		t.Errorf("the object is on the bus in form %q", form)
	}
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 2 }) // its mark, from which the next one goes on
	stop()
	_, stop = start(t, s, b, "two", func(c *Config) { c.Kinds = []kinds.Kind{brief} }) // full stays
	s.PutPod("b", 0)
	watchertest.Eventually(t, b, "is a", "is b")
	if form := watchertest.LogOf(t, b)[2].Form; form != kinds.Full {
		t.Errorf("a watcher that wants metadata records in form %q, want in full", form)
	}
	stop()
}

// TestALogThatLostItsEndIsPaddedAndCompared: the watcher that stored what is lost still runs.
func TestALogThatLostItsEndIsPaddedAndCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		b := memory.New(memory.Options{})
		s.PutPod("a", 0)
		start(t, s, b, "one")
		time.Sleep(5 * time.Second) // virtual, as all of them here
		for range 3 {
			s.PutPod("a", 0)
		}
		time.Sleep(time.Second) // they are flushed
		if err := b.Truncate(logPods, 2); err != nil {
			t.Fatal(err)
		}
		s.RemovePod("a")
		time.Sleep(5 * time.Second)
		log := watchertest.LogOf(t, b)
		if got := fmt.Sprint(watchertest.Ops(log)); got != "[is a mark gap gap gap gone a gap mark]" {
			t.Fatalf("the log tells %s", got)
		}
		if h := watchertest.Hole(t, log[6]); h.From != 3 || h.To != 5 || log[7].Census.Objects != 0 || log[7].Since != 8 {
			t.Errorf("the gap says %+v, and the mark %d objects since %d", h, log[7].Census.Objects, log[7].Since)
		}
	})
}

func TestOtherSettingsAreToldWithWhatToDo(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	other := fmt.Errorf("%w: EV_pods: max_age is 24h0m0s, want 1h0m0s", bus.ErrSettings)
	service, _ := start(t, s, bustest.Wrap(b).Fail(bustest.EnsureKind, other), "one")
	watchertest.Until(t, func() bool {
		err := service.checkSynced()
		return err != nil && strings.Contains(err.Error(), "max_age is 24h0m0s, want 1h0m0s") && strings.Contains(err.Error(), "edit the streams")
	})
	if all, err := b.Kinds(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("the streams were forgotten: %v, %v", all, err)
	}
}
