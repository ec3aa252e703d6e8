package sleep_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events/sleep"
)

// A loop waits between two attempts, and stops with its context.
func ExampleFor() {
	ctx, cancel := context.WithCancel(context.Background())
	for attempt := 1; sleep.For(ctx, time.Millisecond); attempt++ {
		if fmt.Println("attempt", attempt); attempt == 2 {
			break
		}
	}
	cancel()
	fmt.Println("the whole time passed:", sleep.For(ctx, time.Hour))
	// Output:
	// attempt 1
	// attempt 2
	// the whole time passed: false
}
