package streamtest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// archive is a bus with an archive, as every bus is.
type archive interface {
	bus.Bus
	bus.Archive
}

func testArchive(t *testing.T, whole bus.Bus) {
	Archived(t, whole, func(b bus.Archive) bus.Archive { return b })
}

// Archived tests the archive that as makes from a bus: the bus itself, or a copy of it. It
// first fills the bus, which must be empty.
func Archived(t *testing.T, whole bus.Bus, as func(bus.Archive) bus.Archive) {
	k, filled := newKit(t, whole), whole.(archive)
	log := subject.LogStream("pods")
	b := as(filled)
	if err := read(k, b, bus.Passage{Stream: "EV_nothing"}, nil); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("reading a stream that is not there: %v", err)
	}
	k.must(read(k, b, bus.Passage{Stream: log}, nil)) // the log is empty
	if state, err := b.StreamState(k.ctx, log); err != nil || state.First != 1 || state.Last != 0 || state.Messages != 0 {
		t.Errorf("the state of an empty log is %+v, %v", state, err)
	}
	a := k.appender(kinds.Pods.Kind)
	const objects, rounds = 5, 1000 // more than one batch
	for i := range objects * rounds {
		k.must(a.Append(k.ctx, k.pod(fmt.Sprint("pod-", i%objects), i+1)))
	}
	k.must(a.Flush(k.ctx))
	standing(k, filled)
	k.must(whole.(bus.ShadowBus).EnsureShadow(k.ctx, inShadow))
	b = as(filled)
	one := subject.Delta(events.Ref{Kind: "pods", Namespace: "default", Name: "pod-2"})
	archivePassages(k, b, one, objects, rounds)
	archiveSingle(k, b, one)
	archiveSame(k, b, subject.LogStream("pods"))
	archiveSame(k, b, subject.TurnStream(controller))
	archiveNames(k, b)
}

// archivePassages tests the reads of passages.
func archivePassages(k *kit, b bus.Archive, one string, objects, rounds uint64) {
	log := subject.LogStream("pods")
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
		"an absent object":   {bus.Passage{Stream: log, Subject: "ev.pods.1.none.*"}, nil},
		"to beyond the end":  {bus.Passage{Stream: log, From: 4999, To: 9000}, every[4998:]},
	} {
		var got []uint64
		k.must(read(k, b, c.passage, func(m events.Message) { got = append(got, m.Sequence) }))
		if !slices.Equal(got, c.want) {
			k.Errorf("%s: %d messages, want %d: %.60v", name, len(got), len(c.want), got)
		}
	}
	k.must(read(k, b, bus.Passage{Stream: log, From: 1, To: 1, HeadersOnly: true}, func(m events.Message) {
		if len(m.Data) > 0 || m.Get(events.HeaderRV) != "1" || m.Subject == "" || events.Verify(m) != nil {
			k.Errorf("headers only: %+v, %v", m, events.Verify(m))
		}
	}))
	for from, want := range map[uint64]uint64{0: 3, 3: 3, 4: 8, 4990: 4993, 4998: 4998, 4999: 0, 9000: 0} {
		m, ok, err := b.Next(k.ctx, log, one, from)
		if k.must(err); m.Sequence != want || ok != (want > 0) || ok && m.Subject != one {
			k.Errorf("the next from %d on is %d, %v; want %d", from, m.Sequence, ok, want)
		}
	}
	enough := errors.New("enough")
	if err := b.Read(k.ctx, bus.Passage{Stream: log}, func([]events.Message) error { return enough }); !errors.Is(err, enough) {
		k.Errorf("the handler's error comes back as %v", err)
	}
}

// archiveSingle tests the lookups of single messages.
func archiveSingle(k *kit, b bus.Archive, one string) {
	log := subject.LogStream("pods")
	if state, err := b.StreamState(k.ctx, log); err != nil || state.First != 1 || state.Last != 5000 || state.Messages != 5000 || state.Now.IsZero() || state.Created.IsZero() {
		k.Errorf("the state of the log is %+v, %v", state, err)
	}
	m, ok, err := b.Last(k.ctx, log, one)
	if k.must(err); !ok || m.Sequence != 4998 || m.Subject != one || m.Stream != log || string(m.Data) != `{"version":4998}` || events.Verify(m) != nil {
		k.Errorf("the last of a subject is %+v, %v, %v", m, ok, events.Verify(m))
	}
	if _, ok, err := b.Last(k.ctx, log, "ev.pods.1.none.none"); ok || err != nil {
		k.Errorf("the last of a subject that nothing is on: %v, %v", ok, err)
	}
	for _, sequence := range []uint64{1, 2500, 5000} {
		m, ok, err := b.At(k.ctx, log, sequence)
		if k.must(err); !ok || m.Sequence != sequence || m.Get(events.HeaderRV) != fmt.Sprint(sequence) || m.Time.IsZero() {
			k.Errorf("message %d is %+v, %v", sequence, m, ok)
		}
	}
	for _, sequence := range []uint64{0, 5001} {
		if m, ok, err := b.At(k.ctx, log, sequence); ok || err != nil {
			k.Errorf("message %d is %+v, %v", sequence, m, err)
		}
	}
}

// archiveSame tests that every lookup of a message returns the same bytes.
func archiveSame(k *kit, b bus.Archive, stream string) {
	k.must(read(k, b, bus.Passage{Stream: stream, To: 3}, func(m events.Message) {
		at, _, err := b.At(k.ctx, stream, m.Sequence)
		k.must(err)
		next, _, err := b.Next(k.ctx, stream, m.Subject, m.Sequence)
		k.must(err)
		for _, found := range []events.Message{at, next} {
			if m.Time, found.Time = m.Time.UTC(), found.Time.UTC(); !reflect.DeepEqual(m, found) {
				k.Errorf("message %d of %s is %+v, and found alone %+v", m.Sequence, stream, m, found)
			}
		}
	}))
}

// standing starts a consumer of the turns, and waits until the archive shows it.
func standing(k *kit, b archive) {
	for i := range 3 {
		_, err := b.Put(k.ctx, turn(fmt.Sprint(i), "x"), fmt.Sprint(i))
		k.must(err)
	}
	go func() {
		_ = b.Work(k.ctx, bus.Work{Stream: subject.TurnStream(controller), Durable: "worker", MaxPending: 2}, func(d bus.Delivery) {
			if d.Message().Sequence == 1 {
				d.Ack()
			}
		})
	}()
	eventually.True(k, Patience, "a consumer's standing is told", func() bool {
		have, err := b.Consumers(k.ctx, subject.TurnStream(controller))
		k.must(err)
		return len(have) == 1 && have[0].Answered == 1 && have[0].Unanswered == 2 && have[0].Pending == 0
	})
}

const inShadow = "shadowed-controller"

// archiveNames tests the lists of controllers, kinds and consumers.
func archiveNames(k *kit, b bus.Archive) {
	found, err := b.Controllers(k.ctx)
	if k.must(err); !slices.Equal(found, []string{controller}) {
		k.Errorf("the controllers are %v", found)
	}
	found, err = b.Shadows(k.ctx)
	if k.must(err); !slices.Equal(found, []string{inShadow}) {
		k.Errorf("the controllers in shadow are %v", found)
	}
	have, err := b.Kinds(k.ctx)
	if k.must(err); !slices.Equal(have, []kinds.Kind{kinds.Pods.Kind}) {
		k.Errorf("the kinds are %v", have)
	}
	who, err := b.Consumers(k.ctx, subject.TurnStream(controller))
	if k.must(err); len(who) != 1 || who[0].Name != "worker" || who[0].Answered != 1 || who[0].Unanswered != 2 {
		k.Errorf("those who work on the turns are %+v", who)
	}
	if _, err := b.Consumers(k.ctx, "EV_nothing"); !errors.Is(err, bus.ErrNoStream) {
		k.Errorf("who works on a stream that is not there: %v", err)
	}
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
