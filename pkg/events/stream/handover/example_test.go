package handover_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/stream/handover"
)

// A reader that has read as far as message 7 gets the next one from its publisher.
func ExampleHub() {
	h := handover.New()
	r := h.Attach("EV_pods", 8)
	h.Store(events.Message{Stream: "EV_pods", Sequence: 8})
	<-r.Ready()
	batch, err := r.Take()
	fmt.Println(len(batch), err)
	h.Lose("EV_pods")
	_, err = r.Take()
	fmt.Println(err)
	// Output:
	// 1 <nil>
	// no more messages are handed over in this process
}
