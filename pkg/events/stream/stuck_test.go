package stream

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// A server that stands still for a while delivers as little as one that cannot read what
// it has. Only where two sessions in a row get no further is the record damaged.
func TestOneSilenceIsNoDamage(t *testing.T) {
	t.Parallel()
	r := &passage{}
	for _, step := range []struct {
		from    uint64
		damaged bool
	}{{0, false}, {1, true}, {7, false}, {9, false}, {9, true}} {
		r.From = step.from
		if err := r.stuck(); err == nil || errors.Is(err, events.ErrDamaged) != step.damaged {
			t.Errorf("nothing comes from %d on: %v; damaged should be %t", step.from, err, step.damaged)
		}
	}
}
