package sign_test

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/sign"
)

// A writer carries out turns that a key in its trust file has signed.
func ExampleTrust_Turn() {
	private, public, err := sign.Generate()
	if err != nil {
		fmt.Println(err)
	}
	signer, err := sign.NewSigner(private)
	if err != nil {
		fmt.Println(err)
	}
	trust, err := sign.NewTrust(public)
	if err != nil {
		fmt.Println(err)
	}
	turn := events.Message{Subject: "turn.job-controller.act.default.once", Header: map[string][]string{}, Data: []byte(`{}`), Time: time.Now()}
	fmt.Println(trust.Turn(turn, time.Minute) != nil)
	signer.Turn(turn, 0, time.Now())
	turn.Header["Nats-Expected-Last-Subject-Sequence"] = []string{"0"} // as the bus stores it
	fmt.Println(trust.Turn(turn, time.Minute), sign.By(turn) == signer.ID())
	// Output:
	// true
	// <nil> true
}
