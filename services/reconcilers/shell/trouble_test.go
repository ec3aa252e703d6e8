package shell

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// deaf is a bus whose streams cannot be followed.
type deaf struct{ bus.Bus }

func (deaf) StreamState(context.Context, string) (bus.State, error) { return bus.State{}, nil }

func (deaf) Follow(context.Context, string, uint64, func([]events.Message) error) error {
	return bus.ErrNoStream
}

func TestAStreamThatCannotBeFollowedIsTrouble(t *testing.T) {
	memory := NewMemory()
	memory.Register(toy().Describe())
	l := NewLoop(deaf{}, toy(), memory, Settings{}, nil)
	if err := l.Trouble(); err != nil {
		t.Fatalf("trouble before anything was tried: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go l.followOutcomes(ctx, func() {})
	for deadline := time.Now().Add(5 * time.Minute); l.Trouble() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("a desk that hears no outcomes is in no trouble")
		}
		time.Sleep(time.Millisecond) // between looks
	}
}
