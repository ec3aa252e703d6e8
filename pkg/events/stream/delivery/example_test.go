package delivery_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events/stream/delivery"
)

// The reply subject of a delivery says where its message is.
func ExamplePositionOf() {
	p, err := delivery.PositionOf("$JS.ACK.EV_pods.reader-1.1.1200.7.1700000000123456789.3")
	if err != nil {
		panic(err)
	}
	fmt.Println("message", p.Sequence, "is delivery", p.Delivery, "and", p.Pending, "are behind it")
	// Output:
	// message 1200 is delivery 7 and 3 are behind it
}
