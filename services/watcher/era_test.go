package watcher

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
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

// told is a new epoch of the storage that is told on a bus.
func told(t *testing.T, b bus.Peers, data string) {
	t.Helper()
	if err := b.Say(events.EpochTopic, []byte(data)); err != nil {
		t.Fatal(err)
	}
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

// What another watcher has found out is taken over, number and all; what is no news,
// or no number, changes nothing.
func TestAWatcherIsToldThatTheStorageWentBack(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	service, _ := start(t, s, b, "one")
	until(t, service.Synced)
	until(t, func() bool { // it may not be listening yet
		told(t, b, `{"epoch":3}`)
		return epochOf(t, b, "pods") == 3
	})
	before := len(logOf(t, b))
	told(t, b, `{"epoch":2}`)
	told(t, b, `{"epoch":3}`)
	told(t, b, `{"epoch":`)
	told(t, b, `{"epoch":4}`)
	until(t, func() bool {
		log := logOf(t, b)
		return log[len(log)-1].Op == events.Mark && log[len(log)-1].Epoch == 4
	})
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

// heralds is a bus that keeps what is said on it.
type heralds struct {
	bus.Bus
	mu   sync.Mutex
	said []uint64
}

func (h *heralds) Say(_ string, data []byte) error {
	var told events.StorageEpoch
	if err := json.Unmarshal(data, &told); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, told.Epoch)
	return nil
}

// A new epoch is told at once, and then from time to time; the first one needs no word.
func TestEpochsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heralds{}
		s := &Service{config: Config{Bus: h}, era: newEra()}
		ctx, cancel := context.WithCancel(t.Context())
		go s.repeat(ctx)
		said := func(after time.Duration, want ...uint64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			if !slices.Equal(h.said, want) {
				t.Errorf("it said %v, want %v", h.said, want)
			}
		}
		said(time.Hour)
		s.era.begin(1)
		said(0, 1)
		said(eraRepeated-1, 1)
		said(1, 1, 1)
		s.era.begin(2)
		said(0, 1, 1, 2)
		s.era.begin(1)
		said(eraRepeated, 1, 1, 2, 2)
		cancel()
		synctest.Wait()
	})
}
