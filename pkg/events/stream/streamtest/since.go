package streamtest

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// testWorkSince: a consumer that is made does not go back further than it is
// asked to, and knows that what it finds may have been delivered before.
func testWorkSince(t *testing.T, b bus.Bus) {
	const since = 300 * time.Millisecond
	k := newKit(t, b)
	_, err := b.Store(k.ctx, turn("old", "old"), 0)
	k.must(err)
	stored := time.Now()
	k.eventually("the turn is old", func() bool { return time.Since(stored) > 2*since })
	_, err = b.Store(k.ctx, turn("young", "young"), 0)
	k.must(err)
	w := k.work(bus.Work{Stream: subject.TurnStream(controller), Durable: "since", Since: since})
	d := k.next(w)
	if string(d.Message().Data) != "young" || d.Attempt() != 2 {
		t.Errorf("first comes %s, attempt %d; want young, which may have come before", d.Message().Data, d.Attempt())
	}
	d.Done()
	_, err = b.Store(k.ctx, turn("new", "new"), 0)
	k.must(err)
	d = k.next(w)
	if string(d.Message().Data) != "new" || d.Attempt() != 1 {
		t.Errorf("then comes %s, attempt %d; want new, which cannot have come before", d.Message().Data, d.Attempt())
	}
	d.Done()
}

// testStateTellsTheTime: by the clock that stamps messages.
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
