package watcher

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// epochOf returns the epoch of the newest delta of a kind's log.
func epochOf(t *testing.T, b bus.Bus, kind kinds.Name) uint64 {
	t.Helper()
	log := watchertest.LogOfKind(t, b, kind)
	if len(log) == 0 {
		return 0
	}
	return log[len(log)-1].Epoch
}

// A kind that is first watched after a restore is in the epoch of all other kinds, and not in its
// own.
func TestAKindBeginsInTheEpochOfTheStorage(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	_, stop := start(t, s, b, "one")
	watchertest.EventuallySorted(t, b, "is a")
	s.PutPod("a", 0)
	watchertest.EventuallySorted(t, b, "is a", "is a")
	stop()
	s.Restore(1)
	_, stop = start(t, s, b, "two")
	watchertest.Until(t, func() bool { return epochOf(t, b, "pods") == 1 })
	stop()
	s.Serve(watchertest.Widgets)
	s.Edit("widgets", "w", func(*corev1.Pod) {})
	start(t, s, b, "three", every)
	watchertest.Until(t, func() bool { return epochOf(t, b, "widgets.example.com") == 1 })
	if at := epochOf(t, b, "pods"); at != 1 {
		t.Errorf("pods went on to epoch %d", at)
	}
}

// A watcher adopts the epoch that another one has found as soon as that is in a log, with its
// number. A claim of a known epoch changes nothing.
func TestAWatcherIsToldThatTheStorageWentBack(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	service, _ := start(t, s, b, "one")
	watchertest.Until(t, service.Synced)
	say := func(epoch uint64) {
		t.Helper()
		if err := storageepoch.Say(b, storageepoch.Claim{Epoch: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(epoch uint64) { // the log of another watcher's kind
		t.Helper()
		if err := b.EnsureKind(t.Context(), kinds.Jobs.Kind); err != nil {
			t.Fatal(err)
		}
		log, err := b.Append(t.Context(), kinds.Jobs.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		m := subject.Message(events.Delta{Kind: kinds.Jobs.Name, Op: events.Mark, ResourceVersion: "1", Epoch: epoch, Before: events.Place{Known: true}})
		if err := errors.Join(log.Append(t.Context(), events.Seal(m)), log.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	in := func(epoch uint64) bool { // the kind is fully recorded in the epoch
		log := watchertest.LogOf(t, b)
		return len(log) > 0 && log[len(log)-1].Epoch == epoch && log[len(log)-1].Op == events.Mark
	}
	shows(3)
	watchertest.Until(t, func() bool { say(3); return in(3) }) // the watcher may not be listening yet
	before := len(watchertest.LogOf(t, b))
	say(2)
	say(3)
	shows(4)
	say(4)
	watchertest.Until(t, func() bool { return in(4) })
	log := watchertest.LogOf(t, b)
	at := slices.IndexFunc(log, func(d events.Delta) bool { return d.Epoch == 4 })
	if again := log[before:at]; len(again) > 0 {
		t.Errorf("a claim that is no news makes the watcher record %v", watchertest.Ops(again))
	}
	var hole events.Hole
	for _, d := range log[at:] {
		if d.Op == events.Gap {
			if err := json.Unmarshal(d.Body, &hole); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := "the API server's history is not the one that was watched, as another kind has shown"; hole.Reason != want {
		t.Errorf("the gap says %q, want %q", hole.Reason, want)
	}
}

// The storage went back to before a kind was defined. No session watches the kind, and controllers
// that read every kind wait until its end is recorded in the epoch of the storage: with objects or
// without, and in each later epoch.
func TestAKindThatIsNotServedIsEndedInEveryEpoch(t *testing.T) {
	t.Parallel()
	const widgets, gadgets kinds.Name = "widgets.example.com", "gadgets.example.com"
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	s.Serve(watchertest.Widgets)
	s.Edit("widgets", "w", func(*corev1.Pod) {})
	start(t, s, b, "one", every)
	watchertest.Until(t, func() bool {
		return watchertest.LastOf(t, b, widgets).Op == events.Mark && watchertest.LastOf(t, b, "pods").Op == events.Mark
	})
	// A kind of which no watcher has recorded anything.
	if err := b.EnsureKind(t.Context(), kinds.Kind{Name: gadgets, Version: "v1", Kind: "Gadget", Form: kinds.Metadata}); err != nil {
		t.Fatal(err)
	}
	s.Unserve(watchertest.Widgets)
	ended := func(kind kinds.Name, epoch, objects uint64) func() bool {
		return func() bool {
			d := watchertest.LastOf(t, b, kind)
			return d.Op == events.Mark && d.Epoch == epoch && d.Census.Known && d.Census.Objects == objects
		}
	}
	for epoch := uint64(1); epoch <= 2; epoch++ {
		before := len(watchertest.LogOfKind(t, b, "pods"))
		s.PutPod("a", 0)
		watchertest.Until(t, func() bool { return len(watchertest.LogOfKind(t, b, "pods")) > before })
		s.Restore(2)
		watchertest.Until(t, ended("pods", epoch, 1))
		watchertest.Until(t, ended(widgets, epoch, 0))
		if epoch == 1 {
			watchertest.Until(t, ended(gadgets, epoch, 0))
		}
	}
	// The watcher removes streams that hold nothing but marks.
	watchertest.Until(t, func() bool { return len(watchertest.LogOfKind(t, b, gadgets)) == 0 })
}
