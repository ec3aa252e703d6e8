package storageepoch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// heralds is a bus that keeps what is published on it, while it is connected.
type heralds struct {
	bus.Peers
	mu   sync.Mutex
	said []string
	away error
}

func (h *heralds) Broadcast(topic string, data []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away != nil {
		return h.away
	}
	h.said = append(h.said, string(data))
	return h.Peers.Broadcast(topic, data)
}

func (h *heralds) lost(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = err
}

// shared is a tracker that shares epochs on a bus for the duration of the test.
func shared(t *testing.T, b bus.Peers, trouble func(error), options ...func(*storageepoch.Config)) *storageepoch.Tracker {
	e := storageepoch.New()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	config := storageepoch.Config{Bus: b, Trouble: trouble, Check: func(context.Context, bool) (uint64, error) { return 0, nil }}
	for _, o := range options {
		o(&config)
	}
	go func() { defer close(done); e.Share(ctx, config) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return e
}

func none(t *testing.T) func(error) {
	return func(err error) { t.Errorf("trouble: %v", err) }
}

func now(e *storageepoch.Tracker) uint64 {
	synctest.Wait()
	epoch, _ := e.Now()
	return epoch
}

// A new epoch is announced at once, and then from time to time; epoch 0 needs no announcement.
func TestEpochsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heralds{Peers: memory.New(memory.Options{})}
		e := shared(t, h, none(t))
		said := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			if !slices.Equal(h.said, want) {
				t.Errorf("the tracker announced %v, want %v", h.said, want)
			}
		}
		const one, two = `{"epoch":1}`, `{"epoch":2}`
		said(time.Hour)
		e.Begin(1)
		said(0, one)
		said(10*time.Second-1, one)
		said(1, one, one)
		e.Begin(2)
		said(0, one, one, two)
		e.Begin(1)
		said(10*time.Second, one, one, two, two)
	})
}

// What one process finds out, all learn, including processes that start later, and even when the
// one that found out has ended.
func TestWhatOneHasFoundOutAllKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		finds := func(c *storageepoch.Config) { c.Check = func(context.Context, bool) (uint64, error) { return 3, nil } }
		heard := shared(t, b, none(t), finds)
		_, over := heard.Now()
		if err := storageepoch.Say(b, storageepoch.Claim{Epoch: 3}); err != nil { // by a process that ends with it
			t.Fatal(err)
		}
		if got := now(heard); got != 3 {
			t.Errorf("a tracker that listens knows epoch %d, want 3", got)
		}
		select {
		case <-over:
		default:
			t.Error("the first epoch is not over")
		}
		late := shared(t, b, none(t), finds)
		time.Sleep(10 * time.Second)
		if got := now(late); got != 3 {
			t.Errorf("a tracker that came later knows epoch %d, want 3", got)
		}
		for _, data := range []string{`{"epoch":2}`, `{"epoch":`, `{"epoch":-1}`, `{}`, `{"epoch":4}`, `{"epoch":18446744073709551615}`} {
			if err := b.Broadcast("epoch", []byte(data)); err != nil {
				t.Fatal(err)
			}
			if got := now(heard); got != 3 {
				t.Errorf("after %s it is epoch %d, want 3", data, got)
			}
		}
	})
}

// While the bus is away, the tracker keeps announcing.
func TestABusThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		h := &heralds{Peers: b}
		var troubles []error
		finds := func(c *storageepoch.Config) { c.Check = func(context.Context, bool) (uint64, error) { return 1, nil } }
		e, other := shared(t, h, func(err error) { troubles = append(troubles, err) }), shared(t, b, none(t), finds)
		away := errors.New("away")
		h.lost(away)
		e.Begin(1)
		if got := now(other); got != 0 || len(troubles) != 1 || !errors.Is(troubles[0], away) {
			t.Errorf("the other knows of epoch %d; trouble: %v", got, troubles)
		}
		h.lost(nil)
		time.Sleep(10 * time.Second)
		if got := now(other); got != 1 {
			t.Errorf("the other knows of epoch %d, want 1", got)
		}
	})
}
