package membership_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// Replicas of one service share its work: each item has one holder.
func ExampleMembership() {
	bus := memory.New(memory.Options{})
	defer bus.Close()
	replica := membership.New(membership.Config{Bus: bus, Service: "writer", ID: "writer-0"})
	fmt.Println(replica.ID(), replica.Members())
	// Output: writer-0 1
}
