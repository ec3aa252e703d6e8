// Package kindlog reads the log of one kind: what it says of the objects that exist (Contents), its
// end, and whether all of it is still what was stored (Scrub). It appends nothing.
package kindlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

// Contents is what a log says of the objects of its kind.
type Contents struct {
	State  *translate.State
	Tally  events.Tally
	Places Places
	// Broken are the objects whose last message is damaged, as far as its subject tells.
	Broken map[events.Ref]events.Delta
	// Unreadable: the bus cannot deliver a part of the log, and what follows it is missing here.
	Unreadable bool
}

// Readable reports whether nothing is known to be missing in the contents.
func (c Contents) Readable() bool { return !c.Unreadable && len(c.Broken) == 0 }

// Matches reports whether the contents certainly have a census.
func (c Contents) Matches(census events.Census) bool {
	return c.Readable() && c.Tally.Census() == census
}

// fold takes in a message. It leaves a damaged one out, and keeps its object in Broken.
func (c *Contents) fold(m events.Message) error {
	d, err := Decode(m)
	if errors.Is(err, events.ErrDamaged) {
		if ref, err := subject.ParseDelta(m.Subject); err == nil && ref.Name != "" {
			uid := cmp.Or(m.Get(events.HeaderUID), "unknown")
			lost := events.Delta{Kind: ref.Kind, Ref: ref, Op: events.Gone, UID: types.UID(uid)}
			c.State.Forget(ref)
			c.Tally.Fold(lost)
			c.Places.Note(events.Gone, m.Subject, m.Sequence)
			lost.Op = events.Is
			c.Broken[ref] = lost
		}
		return nil
	}
	if err != nil {
		return err
	}
	delete(c.Broken, d.Ref)
	c.State.Fold(d, m.Sequence)
	c.Tally.Fold(d)
	if d.Ref.Name != "" {
		c.Places.Note(d.Op, m.Subject, m.Sequence)
	}
	return nil
}

// ReadFrom folds a log, in a state, from a message on.
func ReadFrom(ctx context.Context, b bus.Bus, kind kinds.Name, from uint64, log bus.State) (Contents, error) {
	c := Contents{State: translate.NewState(), Places: Places{}, Broken: map[events.Ref]events.Delta{}}
	err := Replay(ctx, b, kind, from, log, c.fold)
	if errors.Is(err, events.ErrDamaged) {
		c.Unreadable, err = true, nil
	}
	return c, err
}

// Read reads which objects exist, and the last message of the log; the zero delta stands for one
// that is not there, or cannot be read.
func Read(ctx context.Context, b bus.Bus, kind kinds.Name) (c Contents, end events.Delta, err error) {
	log, err := b.StreamState(ctx, subject.LogStream(kind))
	if err != nil {
		return c, end, fmt.Errorf("look at the log of %s: %w", kind, err)
	}
	end, _, err = At(ctx, b, kind, log.Last)
	if err != nil && !errors.Is(err, events.ErrDamaged) {
		return c, end, err
	}
	since, err := bus.RecordedSince(ctx, b, kind)
	if err != nil {
		return c, end, err
	}
	c, err = ReadSince(ctx, b, kind, log, since, end.Census)
	return c, end, err
}

// ReadSince reads which objects a log, in a state, says exist: from the message since which each of
// them has been recorded, and all of the log where that does not give the census of its last message.
func ReadSince(ctx context.Context, b bus.Bus, kind kinds.Name, log bus.State, since uint64, census events.Census) (Contents, error) {
	c, err := ReadFrom(ctx, b, kind, since, log)
	if err == nil && since > log.First && !c.Matches(census) {
		c, err = ReadFrom(ctx, b, kind, 1, log)
	}
	return c, err
}
