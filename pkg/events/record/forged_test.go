package record_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record"
)

// A forged outcome may name any command.
func TestAResultOfNoCommand(t *testing.T) {
	turn := &events.Turn{Commands: []events.Command{{Name: "a"}}}
	for _, at := range []int{-1, 1, 1 << 40, -1 << 40} {
		o := record.Origin{Turn: turn, Result: events.Result{Command: at}}
		if c, ok := o.Command(); ok {
			t.Errorf("command %d is %+v", at, c)
		}
	}
	if c, ok := (&record.Origin{Turn: turn}).Command(); !ok || c.Name != "a" {
		t.Errorf("command 0 is %+v", c)
	}
}
