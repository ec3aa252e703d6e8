// Package history fills a bus with the messages of several days of work, generated from
// the objects that it has now, to measure a start on a large record. Every object ends as
// it was before.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Past are the options of the generated history.
type Past struct {
	// Kind is the kind whose log grows; the bus must have an object of it.
	Kind kinds.Name
	// Controller is the controller whose turns and outcomes are generated.
	Controller string
	// Messages is how many are stored: of ten, eight deltas, a turn and its
	// outcome. Half of the deltas are of existing objects, the other half of
	// objects that were created and deleted.
	Messages int
	// Told is called with the number of stored messages so far; may be nil.
	Told func(int)
}

const (
	// life is the number of deltas of a passing object: created, bound, started, ready,
	// deletion requested, and gone.
	life = 6
	// stores is how many turns are stored concurrently.
	stores = 32
	// report is how many messages are stored between two calls of Told.
	report = 100_000
)

// Make stores the history. No other process may use the bus meanwhile.
//
// Errors: the kind's log has no object or no mark, or the bus refuses.
func (p Past) Make(ctx context.Context, b bus.Bus) error {
	now, err := p.read(ctx, b)
	if err != nil {
		return fmt.Errorf("read the present of %s: %w", p.Kind, err)
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return p.deltas(ctx, b, now) })
	work.Go(func() error { return p.turns(ctx, b) })
	return work.Wait()
}

// present are the kind's objects on the bus, with the census and link for its next
// delta.
type present struct {
	objects []events.Delta
	mark    events.Delta
	tally   events.Tally
	after   events.Link
	places  map[events.Ref]uint64 // the sequence of the last delta of each object
}

var errRead = errors.New("read")

func (p Past) read(ctx context.Context, b bus.Bus) (*present, error) {
	now, log := &present{places: map[events.Ref]uint64{}}, subject.LogStream(p.Kind)
	mark, there, err := b.Last(ctx, log, subject.Mark(p.Kind))
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, errors.New("no mark: was the watcher running?")
	}
	if now.mark, err = decode(mark); err != nil {
		return nil, err
	}
	end, err := b.StreamState(ctx, log)
	if err != nil {
		return nil, err
	}
	last := map[events.Ref]events.Delta{}
	err = b.Follow(ctx, log, max(now.mark.Since, 1), func(batch []events.Message) error {
		for _, m := range batch {
			if err := now.take(m, last); err != nil {
				return err
			}
			if m.Sequence >= end.Last {
				return errRead
			}
		}
		return nil
	})
	switch {
	case err == nil:
		return nil, ctx.Err()
	case !errors.Is(err, errRead):
		return nil, err
	case len(last) == 0:
		return nil, errors.New("no object to make a past for")
	}
	now.objects = slices.SortedFunc(maps.Values(last), func(a, b events.Delta) int { return cmp.Compare(now.places[a.Ref], now.places[b.Ref]) })
	return now, nil
}

// take adds a message of the log; last is the last delta of each object that exists.
func (n *present) take(m events.Message, last map[events.Ref]events.Delta) error {
	d, err := decode(m)
	if err != nil {
		return err
	}
	n.tally.Fold(d)
	if n.after = d.After; d.Op != events.Mark {
		n.after = events.Link{Sequence: m.Sequence, Sum: m.Get(events.HeaderSum)}
	}
	switch d.Op {
	case events.Is:
		last[d.Ref], n.places[d.Ref] = d, m.Sequence
	case events.Gone:
		delete(last, d.Ref)
		delete(n.places, d.Ref)
	case events.Mark, events.Gap:
	}
	return nil
}

func decode(m events.Message) (events.Delta, error) {
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return events.Delta{}, err
	}
	return events.DecodeDelta(ref, m)
}

// deltas stores the deltas. After the existing objects come the last passing ones, at most as
// many as objects, as between two keyframes; then the mark.
func (p Past) deltas(ctx context.Context, b bus.Bus, now *present) error {
	log, err := b.Append(ctx, p.Kind)
	if err != nil {
		return err
	}
	defer log.Close()
	lives := p.Messages * 8 / 10 / (2 * life) // each passing object is gone at the end
	late := lives - min(lives, len(now.objects))
	if err := p.tellMoments(ctx, log, now, 2*life*lives, func(i int) bool { return !passing(i) || i/2/life < late }); err != nil {
		return err
	}
	since := log.Last() + 1
	for _, d := range now.objects {
		if err := now.tell(ctx, log, d); err != nil {
			return err
		}
	}
	if err := p.tellMoments(ctx, log, now, 2*life*lives, func(i int) bool { return passing(i) && i/2/life >= late }); err != nil {
		return err
	}
	now.mark.Since = since
	if err := now.tell(ctx, log, now.mark); err != nil {
		return err
	}
	return log.Flush(ctx)
}

// tellMoments stores those of the generated deltas that are wanted.
func (p Past) tellMoments(ctx context.Context, log bus.Appender, now *present, moments int, wanted func(int) bool) error {
	for i := range moments {
		if !wanted(i) {
			continue
		}
		if err := now.tell(ctx, log, now.delta(i)); err != nil {
			return err
		}
		if p.Told != nil && i%report == 0 && i > 0 {
			p.Told(i)
		}
	}
	return nil
}

// tell appends a delta, as the watcher does: with the census and the link to the message
// before it.
func (n *present) tell(ctx context.Context, log bus.Appender, d events.Delta) error {
	n.tally.Fold(d)
	d.Census, d.After = n.tally.Census(), n.after
	if d.Op != events.Mark { // a mark has its Before already
		d.Before = events.Place{Known: true, Sequence: n.places[d.Ref]}
	}
	m := events.Seal(subject.Message(d))
	if err := log.Append(ctx, m); err != nil {
		return err
	}
	switch d.Op {
	case events.Mark:
		return nil
	case events.Gone:
		delete(n.places, d.Ref)
	default:
		n.places[d.Ref] = log.Last()
	}
	n.after = events.Link{Sequence: log.Last(), Sum: m.Get(events.HeaderSum)}
	return nil
}

// delta is the i-th generated delta: alternately an earlier version of an existing object,
// and a step in the life of a passing one.
func (n *present) delta(i int) events.Delta {
	which, gone := i/2, passing(i)
	if gone {
		which /= life
	}
	d := n.objects[which%len(n.objects)]
	d.ResourceVersion, d.At = strconv.Itoa(i+1), d.At.Add(time.Duration(i)*time.Microsecond-time.Hour)
	if !gone {
		return d
	}
	d.Ref.Name, d.UID = "past-"+strconv.Itoa(which), types.UID("past-"+strconv.Itoa(which))
	if i/2%life == life-1 {
		d.Op = events.Gone
	}
	return d
}

// passing is whether the i-th delta is of an object that was created and deleted.
func passing(i int) bool { return i%2 == 1 }

// turns stores turns and their outcomes, and acknowledges the deliveries of both, as the
// services would have done.
func (p Past) turns(ctx context.Context, b bus.Bus) error {
	n := p.Messages / 10
	if n == 0 {
		return nil
	}
	storing, storeCtx := errgroup.WithContext(ctx)
	storing.SetLimit(stores)
	for i := range n {
		storing.Go(func() error { return p.turn(storeCtx, b, i) })
	}
	if err := storing.Wait(); err != nil {
		return err
	}
	answering, ctx := errgroup.WithContext(ctx)
	answering.Go(func() error { return answer(ctx, b, subject.TurnStream(p.Controller), "writer") })
	answering.Go(func() error { return answer(ctx, b, subject.OutcomeStream(p.Controller), p.Controller) })
	return answering.Wait()
}

func (p Past) turn(ctx context.Context, b bus.Bus, i int) error {
	key := events.Key{Namespace: "past", Name: "past-" + strconv.Itoa(i/life)}
	ref := events.Ref{Kind: p.Kind, Namespace: key.Namespace, Name: "past-" + strconv.Itoa(i)}
	now := time.Now().UTC()
	turn := events.Turn{
		Controller: p.Controller, Key: key, Lane: events.LaneWrite, Now: now, Because: "the past is made",
		Commands: []events.Command{{Verb: events.VerbDelete, Kind: ref.Kind, Version: "v1", Namespace: ref.Namespace, Name: ref.Name}},
	}
	m, err := events.EncodeJSON(turn, events.Trace{})
	if err != nil {
		return err
	}
	m.Subject = subject.Turn(p.Controller, events.LaneWrite, key)
	sequence, err := b.Put(ctx, m, "past-turn-"+strconv.Itoa(i))
	if err != nil {
		return err
	}
	outcome := events.Outcome{
		Controller: p.Controller, Key: key, Lane: events.LaneWrite, Turn: sequence, At: now,
		Results: []events.Result{{Status: events.Absent, Ref: ref}},
	}
	if m, err = events.EncodeJSON(outcome, events.Trace{}); err != nil {
		return err
	}
	m.Subject = subject.Outcome(p.Controller, events.LaneWrite, key)
	_, err = b.Put(ctx, m, "past-outcome-"+strconv.Itoa(i))
	return err
}

// answer acknowledges all pending messages of a consumer.
func answer(ctx context.Context, b bus.Bus, stream, durable string) error {
	end, err := b.StreamState(ctx, stream)
	if err != nil {
		return err
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	return b.Work(ctx, bus.Work{Stream: stream, Durable: durable, AckWait: time.Minute}, func(d bus.Delivery) {
		d.Ack()
		if d.Message().Sequence >= end.Last {
			done()
		}
	})
}
