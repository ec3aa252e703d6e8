package guest_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/guest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A passage is read without a consumer.
func ExampleReader_Read() {
	ctx := context.Background()
	b := memory.New(memory.Options{})
	defer b.Close()
	if err := b.EnsureController(ctx, "deployment-controller"); err != nil {
		panic(err)
	}
	for n := range 3 {
		if _, err := b.Put(ctx, events.Message{Subject: subject.Outcome("deployment-controller", events.LaneWrite, events.Key{Name: "web"}), Data: []byte{byte(n)}}, fmt.Sprint(n)); err != nil {
			panic(err)
		}
	}
	r := &guest.Reader{Source: b}
	err := r.Read(ctx, bus.Passage{Stream: "OUTCOME_deployment-controller", To: 3}, func(batch []events.Message) error {
		fmt.Println(len(batch), "messages from", batch[0].Sequence, "on")
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output:
	// 3 messages from 1 on
}
