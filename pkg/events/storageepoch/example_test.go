package storageepoch_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events/storageepoch"
)

// A restore of etcd begins a new epoch. What waits on the old one is told.
func ExampleTracker() {
	tracker := storageepoch.New()
	tracker.Begin(1)
	epoch, over := tracker.Now()
	tracker.Begin(2)
	<-over
	fmt.Println("epoch", epoch, "is over")
	// Output: epoch 1 is over
}
