package growstack_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events/growstack"
)

// A goroutine that is about to go deep grows its stack first.
func ExampleGrow() {
	done := make(chan string)
	go func() {
		growstack.Grow()
		done <- fmt.Sprint("encoded and sent")
	}()
	fmt.Println(<-done)
	// Output: encoded and sent
}
