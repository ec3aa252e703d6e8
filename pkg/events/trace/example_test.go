package trace_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/trace"
)

// The parent in a message is a W3C trace context.
func ExampleSampled() {
	fmt.Println(trace.Sampled(events.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}))
	fmt.Println(trace.Sampled(events.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}))
	// Output:
	// true
	// false
}
