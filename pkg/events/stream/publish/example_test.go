package publish_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/stream/publish"
)

// A message is sealed with a checksum when it is sent.
func ExampleOutgoing() {
	out := publish.Outgoing(events.Message{Subject: "turn.c.act.a.b", Data: []byte("x")}, "Nats-Msg-Id", "7")
	fmt.Println(out.Subject, out.Header.Get("Nats-Msg-Id"), out.Header.Get(events.HeaderSum) != "")
	// Output:
	// turn.c.act.a.b 7 true
}
