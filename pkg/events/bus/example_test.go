package bus_test

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// Before tells by the bus's own time stamps which message was stored first.
func ExampleBefore() {
	first := events.Message{Time: time.Unix(100, 0)}
	second := events.Message{Time: time.Unix(200, 0)}
	fmt.Println(bus.Before(first, second), bus.Before(second, first))
	// Output: true false
}
