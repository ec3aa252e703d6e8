package stream_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
)

// Connect to a bus, make the streams of a kind, and see how far its log reaches.
func ExampleConnect() {
	ctx := context.Background()
	b, err := stream.Connect(ctx, stream.Options{URL: "nats://127.0.0.1:4222"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	if err := b.EnsureKind(ctx, kinds.Pods.Kind); err != nil {
		fmt.Println(err)
		return
	}
	state, err := b.StreamState(ctx, "EV_pods")
	fmt.Println(state.Last, err)
}
