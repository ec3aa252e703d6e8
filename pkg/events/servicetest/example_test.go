package servicetest_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/pkg/events/servicetest"
)

// A test runs a service, and stops it to see what remains.
func ExampleRun() {
	t := &fake{ctx: context.Background()} // in a test, its own t
	stop := servicetest.Run(t, "watcher", func(ctx context.Context) error {
		<-ctx.Done()
		fmt.Println("the watcher ends")
		return nil
	})
	stop()
	fmt.Println("the watcher has ended")
	// Output:
	// the watcher ends
	// the watcher has ended
}
