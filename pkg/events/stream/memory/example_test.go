package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Of two publishers that expect the same last message on a subject, the bus refuses the second.
func Example() {
	ctx := context.Background()
	b := memory.New(memory.Options{})
	defer b.Close()
	if err := b.EnsureController(ctx, "replicaset-controller"); err != nil {
		fmt.Println(err)
	}
	turn := events.Message{Subject: subject.Turn("replicaset-controller", events.LaneWrite, events.Key{Namespace: "default", Name: "web"})}
	sequence, err := b.Store(ctx, turn, 0)
	fmt.Println(sequence, err)
	_, err = b.Store(ctx, turn, 0)
	fmt.Println(errors.Is(err, bus.ErrOvertaken))
	// Output:
	// 1 <nil>
	// true
}
