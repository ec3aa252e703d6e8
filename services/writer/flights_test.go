package writer

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// listen has a writer say a heartbeat, which comes back after a while.
func listen(f *flights, after time.Duration) {
	_, said := f.beat()
	time.Sleep(after)
	f.hear(said.Encode())
}

// nothing is a delivery whose answers nobody hears.
type nothing struct{}

var _ bus.Delivery = nothing{}

func (nothing) Message() events.Message { return events.Message{} }
func (nothing) Attempt() int            { return 1 }
func (nothing) Done()                   {}
func (nothing) Later(time.Duration)     {}
func (nothing) Hopeless(string)         {}
func (nothing) Working()                {}
