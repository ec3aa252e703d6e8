package natserr_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// Callers branch on the errors of package bus.
func ExampleTranslate() {
	err := natserr.Translate(context.Background(), jetstream.ErrStreamNotFound)
	fmt.Println(errors.Is(err, bus.ErrNoStream), natserr.IsPermanent(err))
	// Output:
	// true true
}
