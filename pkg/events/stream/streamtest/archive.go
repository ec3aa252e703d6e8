package streamtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// archive is a bus that can be asked about the past, as every bus can.
type archive interface {
	bus.Bus
	bus.Archive
}

func testArchive(t *testing.T, whole bus.Bus) {
	k, b := newKit(t, whole), whole.(archive)
	log := subject.LogStream("pods")
	if err := read(k, b, bus.Passage{Stream: "EV_nothing"}, nil); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("reading a stream that is not there: %v", err)
	}
	k.must(read(k, b, bus.Passage{Stream: log}, nil)) // holds nothing
	a := k.appender(kinds.Pods.Kind)
	const objects, rounds = 5, 1000 // more than one batch
	for i := range objects * rounds {
		k.must(a.Append(k.ctx, k.pod(fmt.Sprint("pod-", i%objects), i+1)))
	}
	k.must(a.Flush(k.ctx))
	one := subject.Delta(events.Ref{Kind: "pods", Namespace: "default", Name: "pod-2"})
	every := stretch(1, objects*rounds, 1)
	for name, c := range map[string]struct {
		passage bus.Passage
		want    []uint64
	}{
		"all":                {bus.Passage{Stream: log}, every},
		"an end":             {bus.Passage{Stream: log, From: 4990}, every[4989:]},
		"a middle":           {bus.Passage{Stream: log, From: 10, To: 2500}, every[9:2500]},
		"one object":         {bus.Passage{Stream: log, Subject: one}, stretch(3, objects*rounds, objects)},
		"a middle of one":    {bus.Passage{Stream: log, Subject: one, From: 4, To: 20}, []uint64{8, 13, 18}},
		"beyond the end":     {bus.Passage{Stream: log, From: 5001}, nil},
		"since ever":         {bus.Passage{Stream: log, Since: time.Unix(1, 0), To: 3}, every[:3]},
		"since a later time": {bus.Passage{Stream: log, Since: time.Now().Add(time.Hour)}, nil},
		"nobody":             {bus.Passage{Stream: log, Subject: "ev.pods.1.none.*"}, nil},
		"to beyond the end":  {bus.Passage{Stream: log, From: 4999, To: 9000}, every[4998:]},
	} {
		var got []uint64
		k.must(read(k, b, c.passage, func(m events.Message) { got = append(got, m.Sequence) }))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %d messages, want %d: %.60v", name, len(got), len(c.want), got)
		}
	}
	k.must(read(k, b, bus.Passage{Stream: log, From: 1, To: 1, HeadersOnly: true}, func(m events.Message) {
		if len(m.Data) > 0 || m.Get(events.HeaderRV) != "1" || m.Subject == "" || events.Verify(m) != nil {
			t.Errorf("headers only: %+v, %v", m, events.Verify(m))
		}
	}))
	for from, want := range map[uint64]uint64{0: 3, 3: 3, 4: 8, 4990: 4993, 4998: 4998, 4999: 0, 9000: 0} {
		m, ok, err := b.Next(k.ctx, log, one, from)
		if k.must(err); m.Sequence != want || ok != (want > 0) || ok && m.Subject != one {
			t.Errorf("the next from %d on is %d, %v; want %d", from, m.Sequence, ok, want)
		}
	}
	enough := errors.New("enough")
	if err := b.Read(k.ctx, bus.Passage{Stream: log}, func([]events.Message) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("the handler's error comes back as %v", err)
	}
	archiveNames(k, b)
}

// archiveNames tests what there is to be read, and by whom.
func archiveNames(k *kit, b archive) {
	found, err := b.Controllers(k.ctx)
	if k.must(err); !slices.Equal(found, []string{controller}) {
		k.Errorf("the controllers are %v", found)
	}
	for i := range 3 {
		_, err := b.Put(k.ctx, turn(fmt.Sprint(i), "x"), fmt.Sprint(i))
		k.must(err)
	}
	ctx, stop := context.WithCancel(k.ctx)
	defer stop()
	go func() {
		_ = b.Work(ctx, bus.Work{Stream: subject.TurnStream(controller), Durable: "worker", MaxPending: 2}, func(d bus.Delivery) {
			if d.Message().Sequence == 1 {
				d.Done()
			}
		})
	}()
	k.eventually("a consumer's standing is told", func() bool {
		have, err := b.Consumers(k.ctx, subject.TurnStream(controller))
		k.must(err)
		return len(have) == 1 && have[0].Name == "worker" && have[0].Answered == 1 && have[0].Unanswered == 2 && have[0].Pending == 0
	})
}

func read(k *kit, b bus.Archive, p bus.Passage, each func(events.Message)) error {
	return b.Read(k.ctx, p, func(batch []events.Message) error {
		for _, m := range batch {
			each(m)
		}
		return nil
	})
}

func stretch(from, to, step uint64) (out []uint64) {
	for n := from; n <= to; n += step {
		out = append(out, n)
	}
	return out
}
