package shell

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// deaf is a bus whose consumers cannot be used.
type deaf struct{ bus.Bus }

func (deaf) Work(context.Context, bus.Work, func(bus.Delivery)) error { return bus.ErrNoStream }

func TestWhoGetsNoDeliveriesSaysSo(t *testing.T) {
	memory := NewMemory()
	memory.Register(toy().Describe())
	l := NewLoop(deaf{}, toy(), memory, Settings{}, nil)
	if err := l.Trouble(); err != nil {
		t.Fatalf("trouble before anything was tried: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go l.Attend(ctx, kinds.Pods.Name)
	for deadline := time.Now().Add(5 * time.Minute); l.Trouble() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("a desk that gets no deliveries is in no trouble")
		}
		time.Sleep(time.Millisecond) // between looks
	}
}
