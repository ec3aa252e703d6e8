package subject_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The subject of a turn says whose it is, so that permissions of NATS can bound who publishes it.
func ExampleTurn() {
	name := subject.Turn("replicaset-controller", events.LaneWrite, events.Key{Namespace: "default", Name: "web"})
	fmt.Println(name)
	controller, lane, key, err := subject.ParseTurn(name)
	fmt.Println(controller, lane, key, err)
	fmt.Println(subject.Matches(subject.Turns("replicaset-controller"), name), subject.TurnStream(controller))
	// Output:
	// turn.replicaset-controller.act.14._.default.web
	// replicaset-controller write default/web <nil>
	// true TURN_replicaset-controller
}
