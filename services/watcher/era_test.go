package watcher

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/era"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// epochOf is the epoch of the newest delta of a kind's log.
func epochOf(t *testing.T, b bus.Bus, kind kinds.Name) uint64 {
	t.Helper()
	log := logOfKind(t, b, kind)
	if len(log) == 0 {
		return 0
	}
	return log[len(log)-1].Epoch
}

// A kind that is watched for the first time after a restore is in the epoch in which
// all others are, and not in one of its own.
func TestAKindBeginsInTheEpochOfTheStorage(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	_, stop := start(t, s, b, "one")
	eventuallySorted(t, b, "is a")
	s.change("MODIFIED", "a", 0)
	eventuallySorted(t, b, "is a", "is a")
	stop()
	s.restore(1)
	_, stop = start(t, s, b, "two")
	until(t, func() bool { return epochOf(t, b, "pods") == 1 })
	stop()
	s.set(func() { s.custom = true })
	s.changeOf("widgets", "ADDED", "w", func(*corev1.Pod) {})
	start(t, s, b, "three", every)
	until(t, func() bool { return epochOf(t, b, "widgets.example.com") == 1 })
	if at := epochOf(t, b, "pods"); at != 1 {
		t.Errorf("pods went on to epoch %d", at)
	}
}

// What another watcher has found out is taken over, number and all; what is no news
// changes nothing.
func TestAWatcherIsToldThatTheStorageWentBack(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	service, _ := start(t, s, b, "one")
	until(t, service.Synced)
	say := func(epoch uint64) {
		t.Helper()
		if err := era.Say(b, epoch); err != nil {
			t.Fatal(err)
		}
	}
	in := func(epoch uint64) bool { // it has been told anew to its end
		log := logOf(t, b)
		return len(log) > 0 && log[len(log)-1].Epoch == epoch && log[len(log)-1].Op == events.Mark
	}
	until(t, func() bool { say(3); return in(3) }) // it may not be listening yet
	before := len(logOf(t, b))
	say(2)
	say(3)
	say(4)
	until(t, func() bool { return in(4) })
	log := logOf(t, b)
	at := slices.IndexFunc(log, func(d events.Delta) bool { return d.Epoch == 4 })
	if again := log[before:at]; len(again) > 0 {
		t.Errorf("what is no news made it say %v", ops(again))
	}
	var hole events.Hole
	for _, d := range log[at:] {
		if d.Op == events.Gap {
			if err := json.Unmarshal(d.Body, &hole); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := errRewound.Error() + ", as another kind has shown"; hole.Reason != want {
		t.Errorf("the gap says %q, want %q", hole.Reason, want)
	}
}
