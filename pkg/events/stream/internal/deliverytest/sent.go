// Package deliverytest has a delivery for tests. It imports no other package of the bus, so that the tests
// of each of them can use it.
package deliverytest

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Sent is a delivery as a server sends it.
type Sent struct {
	jetstream.Msg
	Sequence, Delivery, Pending, Size int
}

// Reply has the position of the delivery.
func (m Sent) Reply() string {
	return fmt.Sprintf("$JS.ACK.S.c.1.%d.%d.%d.%d", m.Sequence, m.Delivery, time.Unix(int64(m.Sequence), 0).UnixNano(), m.Pending)
}

// Subject is always the same.
func (m Sent) Subject() string { return "s" }

// Headers are none.
func (m Sent) Headers() nats.Header { return nil }

// Data is as long as Size.
func (m Sent) Data() []byte { return make([]byte, m.Size) }
