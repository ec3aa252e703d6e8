package streamtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/subject"
)

// longestSince bounds the time in which a bus creates a consumer on a slow disk.
const longestSince = 10 * time.Second

// testWorkSince: a new consumer does not go back further than its Since, and knows that another
// consumer may have delivered what it finds.
func testWorkSince(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	for since := 300 * time.Millisecond; !k.since(since); since *= 2 {
		if since > longestSince {
			t.Fatalf("nothing was delivered within %v", since)
		}
		t.Logf("once more: nothing was delivered within %v", since)
	}
}

// since is false when the test could not tell: young messages had become old before the
// consumer existed.
func (k *kit) since(since time.Duration) (seen bool) {
	k.Helper()
	of := fmt.Sprint(since.Milliseconds())
	store := func(name string) {
		_, err := k.bus.Store(k.ctx, turn(name+"-"+of, name), 0)
		k.must(err)
	}
	store("old")
	stored := time.Now()
	eventually.True(k, Patience, "the turn is old", func() bool { return time.Since(stored) > 2*since })
	store("young")
	w := k.work(bus.Work{Stream: subject.TurnStream(controller), Durable: "since-" + of, Since: since})
	var d bus.Delivery
	select {
	case d = <-w.deliveries:
	case <-time.After(since):
		k.stop(w)
		return false
	}
	if string(d.Message().Data) != "young" || d.Attempt() != 2 {
		k.Errorf("first comes %s, attempt %d; want young, which may have come before", d.Message().Data, d.Attempt())
	}
	d.Ack()
	store("new")
	d = k.next(w)
	if string(d.Message().Data) != "new" || d.Attempt() != 1 {
		k.Errorf("then comes %s, attempt %d; want new, which cannot have come before", d.Message().Data, d.Attempt())
	}
	d.Ack()
	return true
}

// testStateTellsTheTime: a stream's state has the time of the clock that stamps messages.
func testStateTellsTheTime(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	_, err := b.Store(k.ctx, turn("now", "now"), 0)
	k.must(err)
	m, _, err := b.At(k.ctx, subject.TurnStream(controller), 1)
	k.must(err)
	now := k.state(subject.TurnStream(controller)).Now
	if age := now.Sub(m.Time); age < -time.Second || age > time.Minute {
		t.Errorf("what was stored just now, at %v, is %v old at %v", m.Time, age, now)
	}
}
