package bustest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// The state of one stream cannot be read, and messages are counted by a hook instead of stored.
func Example() {
	b := bustest.Wrap(memory.New(memory.Options{})).Fail(bustest.StreamState, errors.New("away"), "TURN_a")
	stored := uint64(0)
	b.OnPut = func(context.Context, events.Message, string) (uint64, error) { stored++; return stored, nil }

	ctx := context.Background()
	_, err := b.StreamState(ctx, "TURN_a")
	fmt.Println(err)
	_, err = b.StreamState(ctx, "TURN_b")
	fmt.Println(errors.Is(err, bus.ErrNoStream), b.Count(bustest.StreamState))
	fmt.Println(b.Put(ctx, events.Message{Subject: "x"}, "id"))
	// Output:
	// away
	// true 2
	// 1 <nil>
}
