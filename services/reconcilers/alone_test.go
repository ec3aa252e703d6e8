package reconcilers_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// counter counts who takes tickets of state streams.
type counter struct {
	bus.Bus
	taking *atomic.Int32
}

func (c counter) Work(ctx context.Context, w bus.Work, handle func(bus.Delivery)) error {
	if strings.HasPrefix(w.Stream, "STATE_") {
		c.taking.Add(1)
	}
	return c.Bus.Work(ctx, w, handle)
}

// TestOneReplicaTakesNoTicketsOfTheBus: it decides all the same, and at once: no
// second look comes within the time of the test. When another one comes, both take
// tickets.
func TestOneReplicaTakesNoTicketsOfTheBus(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, w *world) {
		var taking atomic.Int32
		connect := w.connect
		w.connect = func() bus.Bus { return counter{connect(), &taking} }
		w.settings = shell.Settings{Second: time.Hour}
		w.writing(ctx, t, 0)
		r := w.start(ctx)
		eventually(t, "healthy", r.healthy)
		for i := range namespaces {
			w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), "map")
		}
		w.done(ctx, t)
		if n := taking.Load(); n != 0 {
			t.Errorf("%d times the only replica asked for tickets", n)
		}
		w.start(ctx)
		eventually(t, "both take tickets of both kinds", func() bool { return taking.Load() >= 4 })
	})
}
