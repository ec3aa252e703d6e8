package shell

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestATicketOfWhatIsNotThereIsAnswered: its object came and went, and its end has been
// forgotten, or was told without a body. No key can be told of that, and nothing is set aside.
func TestATicketOfWhatIsNotThereIsAnswered(t *testing.T) {
	o := open(t, Settings{})
	at := o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 9, 0, 0, ""))
	s := &slip{}
	o.desk.Ticket(events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "unknown"}, at, events.Trace{}, s)
	for range 10 {
		o.run()
		o.pass(o.desk.settings.MaxBackoff)
	}
	want(t, "of an object that is not there", s, "done")
	if parked := o.desk.Parked(); len(parked) > 0 {
		t.Errorf("set aside: %+v", parked)
	}
}
