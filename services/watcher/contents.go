package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

const (
	// readPoll is the interval at which a reader of the log asks whether there is more to read.
	readPoll = 50 * time.Millisecond
	// readPatience is how long nothing may come before that is an error.
	readPatience = 20 * time.Second
)

// errEnough stops the read of a stream.
var errEnough = errors.New("enough")

// quietTime is how long nothing has arrived while this process was able to receive: what was sent
// while the process was stopped, or while the bus was unreachable, is still to arrive.
type quietTime struct {
	total   time.Duration
	lastRan time.Time // the last moment at which this process ran
}

// maxElapsed bounds the time that one call of elapsed adds; calls come every [readPoll].
const maxElapsed = time.Second

// elapsed returns how long the silence has lasted by now.
func (s *quietTime) elapsed(now time.Time) time.Duration {
	s.total, s.lastRan = s.total+min(now.Sub(s.lastRan), maxElapsed), now
	return s.total
}

// contents is what a log says of the objects of its kind.
type contents struct {
	state  *translate.State
	tally  events.Tally
	places places
	// broken are the objects whose last message is damaged, as far as its subject tells.
	broken map[events.Ref]events.Delta
	// unreadable: the bus cannot deliver a part of the log, and what follows it is missing here.
	unreadable bool
}

// readable reports whether nothing is known to be missing in the contents.
func (c contents) readable() bool { return !c.unreadable && len(c.broken) == 0 }

// matches reports whether the contents certainly has a census.
func (c contents) matches(census events.Census) bool {
	return c.readable() && c.tally.Census() == census
}

// fold takes in a message. It leaves a damaged one out, and keeps its object in broken.
func (c *contents) fold(m events.Message) error {
	d, err := decode(m)
	if errors.Is(err, events.ErrDamaged) {
		if ref, err := subject.ParseDelta(m.Subject); err == nil && ref.Name != "" {
			uid := cmp.Or(m.Get(events.HeaderUID), "unknown")
			lost := events.Delta{Kind: ref.Kind, Ref: ref, Op: events.Gone, UID: types.UID(uid)}
			c.state.Forget(ref)
			c.tally.Fold(lost)
			c.places.note(events.Gone, m.Subject, m.Sequence)
			lost.Op = events.Is
			c.broken[ref] = lost
		}
		return nil
	}
	if err != nil {
		return err
	}
	delete(c.broken, d.Ref)
	c.state.Fold(d, m.Sequence)
	c.tally.Fold(d)
	if d.Ref.Name != "" {
		c.places.note(d.Op, m.Subject, m.Sequence)
	}
	return nil
}

// readContents folds a log, in a state, from a message on.
func readContents(ctx context.Context, b bus.Bus, kind kinds.Name, from uint64, log bus.State) (contents, error) {
	c := contents{state: translate.NewState(), places: places{}, broken: map[events.Ref]events.Delta{}}
	err := replay(ctx, b, subject.LogStream(kind), from, log, c.fold)
	if errors.Is(err, events.ErrDamaged) {
		c.unreadable, err = true, nil
	}
	return c, err
}

// readLog reads which objects exist, and the last message of the log; the zero delta stands for one
// that is not there, or cannot be read.
func readLog(ctx context.Context, b bus.Bus, kind kinds.Name) (c contents, end events.Delta, err error) {
	log, err := b.StreamState(ctx, subject.LogStream(kind))
	if err != nil {
		return c, end, fmt.Errorf("look at the log of %s: %w", kind, err)
	}
	end, _, err = stored(ctx, b, subject.LogStream(kind), log.Last)
	if err != nil && !errors.Is(err, events.ErrDamaged) {
		return c, end, err
	}
	since, err := bus.RecordedSince(ctx, b, kind)
	if err != nil {
		return c, end, err
	}
	c, err = readSince(ctx, b, kind, log, since, end.Census)
	return c, end, err
}

// readSince reads which objects a log, in a state, says exist: from the message since which each of
// them has been recorded, and all of the log where that does not give the census of its last message.
func readSince(ctx context.Context, b bus.Bus, kind kinds.Name, log bus.State, since uint64, census events.Census) (contents, error) {
	c, err := readContents(ctx, b, kind, since, log)
	if err == nil && since > log.First && !c.matches(census) {
		c, err = readContents(ctx, b, kind, 1, log)
	}
	return c, err
}

// knownPosition returns how far the kind has been watched, as far as that is known without its contents: by
// this process, or by the end of the log. Of an epoch in which the log has nothing but what a relist
// recorded the version is unknown.
func (k *kindWatch) knownPosition(ctx context.Context) (translate.Cursor, error) {
	if k.cursor.Version != "" {
		return k.cursor, nil
	}
	past, last := k.cursor, k.appender.Last()
	for at := last; at > 0 && last-at < latestDepth; at-- {
		d, there, err := stored(ctx, k.bus, subject.LogStream(k.kind.Name), at)
		if err != nil && !errors.Is(err, events.ErrDamaged) {
			return past, err
		}
		if !there || err != nil {
			continue
		}
		past.Epoch = max(past.Epoch, d.Epoch)
		if d.ResourceVersion != "" && !d.Sync {
			if d.Epoch == past.Epoch {
				past.Version = d.ResourceVersion
			}
			return past, nil
		}
	}
	return past, nil
}

// replay hands over the messages that a stream of a kind held, from a message on, when it was in
// state at. Marks that expire meanwhile never arrive, so replay asks the stream again and again whether
// there is still a message to wait for.
func replay(ctx context.Context, b bus.Bus, stream string, from uint64, at bus.State, handle func(events.Message) error) error {
	if at.Messages == 0 || at.Last < from {
		return nil
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	batches, failed := make(chan []events.Message), make(chan error, 1)
	go func() {
		failed <- b.Follow(reading, stream, max(from, 1), func(batch []events.Message) error {
			select {
			case batches <- batch:
				return nil
			case <-reading.Done():
				return errEnough
			}
		})
	}()
	poll := time.NewTicker(readPoll)
	defer poll.Stop()
	still, read := quietTime{lastRan: time.Now()}, max(from, 1)-1
	for got := uint64(0); got < at.Messages && read < at.Last; {
		select {
		case batch := <-batches:
			still = quietTime{lastRan: time.Now()}
			for _, m := range batch {
				if m.Sequence > at.Last {
					return nil
				}
				if err := handle(m); err != nil {
					return err
				}
				got, read = got+1, m.Sequence
			}
		case <-poll.C:
			if err := left(ctx, b, stream, from, read, &at); err != nil {
				return err
			}
			if still.elapsed(time.Now()) > readPatience && got < at.Messages && read < at.Last {
				return fmt.Errorf("%w: of %s nothing came for %v behind message %d of %d", events.ErrDamaged, stream, readPatience, read, at.Last)
			}
		case err := <-failed:
			return fmt.Errorf("read %s: interrupted: %w", stream, cmp.Or(err, ctx.Err(), errEnough))
		}
	}
	return nil
}

// left updates how many messages the stream still holds. A reader that begins at a later message
// than the first cannot go by that number; for it, left moves the end back to the last message that
// still exists.
func left(ctx context.Context, b bus.Bus, stream string, from, read uint64, at *bus.State) error {
	now, err := b.StreamState(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at %s: %w", stream, err)
	}
	at.Messages = min(at.Messages, now.Messages)
	for range latestDepth {
		if from <= 1 || at.Last <= read {
			return nil
		}
		if _, there, err := b.At(ctx, stream, at.Last); err != nil || there {
			return err
		}
		at.Last--
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

// stored returns the delta at a sequence of a stream.
func stored(ctx context.Context, b bus.Bus, stream string, sequence uint64) (events.Delta, bool, error) {
	m, there, err := b.At(ctx, stream, sequence)
	if err != nil || !there {
		return events.Delta{}, false, err
	}
	d, err := decode(m)
	return d, err == nil, err
}
