package streamtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// consume is follow through a consumer of the reader's own.
func (k *kit) consume(stream string, from uint64, dealt func() uint64) *reading {
	return k.reads(func(ctx context.Context, r *reading) error {
		return k.bus.Consume(ctx, stream, from, dealt, r.take)
	})
}

func testConsume(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	a, log := k.appender(kinds.Pods.Kind), subject.LogStream("pods")
	for i := 1; i <= 10; i++ {
		k.append(a, k.pod(fmt.Sprint("pod-", i), i))
	}
	none := func() uint64 { return 0 }
	all, some := k.consume(log, 0, none), k.consume(log, 4, none)
	eventually.True(k, Patience, "what is there is read", func() bool { return len(all.messages()) == 10 && len(some.messages()) == 7 })
	for i := 11; i <= 50; i++ {
		k.append(a, k.pod(fmt.Sprint("pod-", i), i))
	}
	eventually.True(k, Patience, "what was stored later is read", func() bool { return len(all.messages()) == 50 && len(some.messages()) == 47 })
	for r, from := range map[*reading]uint64{all: 1, some: 4} {
		for i, n := range r.sequences() {
			if n != from+uint64(i) {
				t.Fatalf("message %d from %d has sequence %d", i, from, n)
			}
		}
		r.cancel()
		k.must(k.end(r))
	}
	mine := errors.New("mine")
	if err := b.Consume(k.ctx, log, 0, none, func([]events.Message) error { return mine }); err != mine {
		t.Errorf("the handler's error came back as %v", err)
	}
	if err := b.Consume(k.ctx, subject.LogStream("nodes"), 0, none, nil); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("Consume of no stream: %v, want ErrNoStream", err)
	}
}

func testConsumeWhatIsLeft(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	a, log := k.appender(kinds.Pods.Kind), subject.LogStream("pods")
	for i := 1; i <= 10; i++ {
		k.append(a, k.pod(fmt.Sprint("pod-", i), i))
	}
	left := func(want uint64, known bool) {
		t.Helper()
		eventually.True(k, Patience, fmt.Sprintf("%d are dealt with (%t)", want, known), func() bool {
			dealt, ok, err := b.Acknowledged(k.ctx, log)
			return err == nil && dealt == want && ok == known
		})
	}
	left(0, false)
	var dealt, ahead atomic.Uint64
	first, second := k.consume(log, 1, dealt.Load), k.consume(log, 5, ahead.Load)
	eventually.True(k, Patience, "both read", func() bool { return len(first.messages()) == 10 && len(second.messages()) == 6 })
	dealt.Store(3)
	ahead.Store(10)
	if !slices.Equal(first.sequences(), []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
		t.Fatalf("read %v", first.sequences())
	}
	left(0, false) // neither has ended
	second.cancel()
	k.must(k.end(second))
	left(10, true)
	dealt.Store(7)
	first.cancel()
	k.must(k.end(first))
	left(7, true)
	if _, _, err := b.Acknowledged(k.ctx, subject.LogStream("nodes")); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("what is left of no stream: %v, want ErrNoStream", err)
	}
}
