package eventually_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/pkg/events/eventually"
)

// A test waits for what a goroutine does. Within is for a caller that reports the failure itself; True
// and Complete fail the test.
func ExampleWithin() {
	var done atomic.Bool
	go done.Store(true)
	fmt.Println(eventually.Within(time.Minute, done.Load))
	// Output: true
}
