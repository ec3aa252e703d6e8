package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/translate"
)

// maxPad bounds the gaps that take the place of lost messages, one for each.
const maxPad = 10_000

// shorterLogPatience is how long a log must stay shorter than it was to count as cut;
// shorterLogPoll is the interval between looks at it.
const shorterLogPatience, shorterLogPoll = time.Second, 50 * time.Millisecond

// resume reads the position in the newest message of the log. It makes sure that the log, which may
// have been damaged or recreated, is what it was when that message was stored. If it is not, ok is
// false, and the session relists.
func (k *Reflector) resume(ctx context.Context) (ok bool, err error) {
	log, err := k.bus.StreamState(ctx, subject.LogStream(k.kind.Name))
	if err != nil {
		return false, fmt.Errorf("look at the log of %s: %w", k.kind.Name, err)
	}
	k.noteLimits(ctx, log)
	last := k.appender.Last()
	if last == 0 {
		k.gap = events.Place{Known: true}
	}
	defer k.setGapStart()
	if log.Last != last {
		return false, fmt.Errorf("open the log of %s: %w", k.kind.Name, bus.ErrOvertaken)
	}
	whole, err := k.complete(ctx, log)
	if err != nil || !whole || last == 0 {
		return false, err
	}
	newest, err := k.newest(ctx, log)
	if err != nil || newest.Op == "" {
		return false, err
	}
	k.noteEnd(newest, last)
	mark, _, err := k.bus.Last(ctx, subject.LogStream(k.kind.Name), subject.Mark(k.kind.Name))
	if err != nil {
		return false, err
	}
	proof, err := kindlog.Decode(mark)
	if err == nil && newest.Op != events.Gap && proof.Before.Known {
		k.gap = proof.Before
	}
	if err == nil && translate.Ended(newest) {
		k.nextGap = events.Hole{Reason: "the API server did not serve the kind"}
		return false, nil
	}
	if newest.Waits > 0 {
		k.nextGap = events.Hole{Reason: "versions that waited to be recorded were not, when their watcher ended"}
		return false, nil
	}
	cursor, ok := translate.Resume(newest)
	if !ok {
		k.nextGap = events.Hole{Reason: "a relist was not finished"}
		return false, nil
	}
	if err != nil || proof.Op != events.Mark {
		k.nextGap = events.Hole{Reason: "the last mark of the log is damaged or missing"}
		return false, nil
	}
	if whole, err := k.count(ctx, log, newest, proof.Since); err != nil || !whole {
		return false, err
	}
	k.cursor = cursor
	return true, k.resumeFrom(ctx, newest, last, proof.Redaction)
}

// resumeFrom resumes from the newest delta. It appends a mark at once where the last mark's Redaction
// is not the policy's, because writers rely on it.
func (k *Reflector) resumeFrom(ctx context.Context, newest events.Delta, last uint64, said events.Redaction) error {
	if err := k.findLatest(ctx, newest, last); err != nil || said == translate.Redaction(k.kind.Name, k.redact) {
		return err
	}
	return k.mark(ctx)
}

// noteEnd takes in what the newest delta of the log says about gaps (it is one, or the log is
// complete up to it), and about how long the kind has been watched.
func (k *Reflector) noteEnd(newest events.Delta, sequence uint64) {
	if kinds.IsHeartbeat(k.kind.Name) {
		k.sight = newest.Sight
	}
	switch {
	case newest.Op == events.Gap:
		k.gap = events.Place{Known: true, Sequence: sequence}
	case !newest.Sync:
		k.whole = newest.At
	}
}

// setGapStart sets when the hole that may become a gap begins.
func (k *Reflector) setGapStart() {
	if k.nextGap.Since.IsZero() {
		k.nextGap.Since = k.whole
	}
}

// complete reports whether the log is the one that was written, up to its end. Where the log has lost
// its end, complete appends gaps in place of the lost messages: otherwise what is stored now would
// have the sequences of what readers have seen.
func (k *Reflector) complete(ctx context.Context, log bus.State) (bool, error) {
	logger := klog.FromContext(ctx).WithValues("kind", k.kind.Name)
	anew, lost := !k.created.IsZero() && !log.Created.Equal(k.created), k.stored
	if !anew && lost > log.Last {
		if err := k.staysShorter(ctx, log, lost); err != nil {
			return false, err
		}
	}
	k.created, k.stored = log.Created, log.Last
	switch {
	case anew:
		k.markDamaged(logger, events.Hole{Reason: "the log was made anew"})
		k.after, k.latest = events.Link{}, noDelta
		return false, nil
	case lost <= log.Last:
		return true, nil
	}
	k.markDamaged(logger, events.Hole{Reason: "the log has lost its end", From: log.Last + 1, To: lost})
	if lost-log.Last > maxPad {
		return false, nil
	}
	if err := k.link(ctx, log); err != nil {
		return false, err
	}
	k.counted = false
	for k.appender.Last() < lost {
		if err := k.append(ctx, translate.Gap(k.kind.Name, "", k.stamp(false))); err != nil {
			return false, err
		}
	}
	return false, k.flush(ctx)
}

// staysShorter makes sure that a log stays shorter than it was. In a NATS cluster, a server that has
// just become the leader of the stream may not have read all of its messages.
//
// Errors: bus.ErrOvertaken, when the log grows after all.
func (k *Reflector) staysShorter(ctx context.Context, log bus.State, lost uint64) error {
	for end := time.Now().Add(shorterLogPatience); time.Now().Before(end); sleep.For(ctx, shorterLogPoll) {
		now, err := k.bus.StreamState(ctx, subject.LogStream(k.kind.Name))
		if err != nil {
			return fmt.Errorf("look at the log of %s: %w", k.kind.Name, err)
		}
		if now.Last != log.Last {
			return fmt.Errorf("look at the log of %s, which goes up to %d and went up to %d: %w", k.kind.Name, now.Last, lost, bus.ErrOvertaken)
		}
	}
	return ctx.Err()
}

// newest returns the last delta of the log if that delta, and the message that it links to, are
// intact; otherwise the zero delta.
func (k *Reflector) newest(ctx context.Context, log bus.State) (d events.Delta, err error) {
	stream, logger := subject.LogStream(k.kind.Name), klog.FromContext(ctx).WithValues("kind", k.kind.Name)
	if err := k.link(ctx, log); err != nil {
		return d, err
	}
	d, there, err := kindlog.At(ctx, k.bus, k.kind.Name, log.Last)
	switch {
	case errors.Is(err, events.ErrDamaged):
		k.markDamaged(logger, events.Hole{Reason: "the end of the log is damaged", From: log.Last, To: log.Last})
		return noDelta, nil
	case err != nil:
		return noDelta, err
	case !there:
		k.nextGap = events.Hole{Reason: "the end of the log is not there any more"}
		return noDelta, nil
	case d.After.Sequence < log.First:
		return d, nil
	}
	before, there, err := k.bus.At(ctx, stream, d.After.Sequence)
	if err != nil {
		return noDelta, fmt.Errorf("read the log of %s: %w", k.kind.Name, err)
	}
	if !there || before.Get(events.HeaderSum) != d.After.Sum || events.Verify(before) != nil {
		k.markDamaged(logger, events.Hole{
			Reason: "a message at the end of the log is lost or damaged", From: d.After.Sequence, To: d.After.Sequence,
		})
		return noDelta, nil
	}
	return d, nil
}

// link finds what the next message must link to.
func (k *Reflector) link(ctx context.Context, log bus.State) (err error) {
	k.after, err = kindlog.LastLink(ctx, k.bus, k.kind.Name, log)
	return err
}

// count makes sure that the log has the objects of its newest delta's census, and starts the tally
// from them. It reads from since, which the last mark names. A watcher that has counted all along need
// not read.
func (k *Reflector) count(ctx context.Context, log bus.State, newest events.Delta, since uint64) (whole bool, err error) {
	if newest.Census.Known && k.counted && k.tally.Census() == newest.Census {
		return true, nil
	}
	c, err := kindlog.ReadSince(ctx, k.bus, k.kind.Name, log, max(since, 1), newest.Census)
	if err != nil {
		return false, err
	}
	k.countFrom(c)
	if c.Matches(newest.Census) || c.Readable() && !newest.Census.Known {
		return true, nil
	}
	now, err := k.bus.StreamState(ctx, subject.LogStream(k.kind.Name))
	switch {
	case err != nil:
		return false, fmt.Errorf("look at the log of %s: %w", k.kind.Name, err)
	case now.Last != log.Last:
		return false, fmt.Errorf("read the log of %s, which another watcher appends to: %w", k.kind.Name, bus.ErrOvertaken)
	}
	reason := unreadable
	if !c.Unreadable {
		reason = fmt.Sprintf("the log tells of %d objects, %d of them damaged, where its last message says %d",
			int(c.Tally.Census().Objects)+len(c.Broken), len(c.Broken), newest.Census.Objects)
	}
	k.markDamaged(klog.FromContext(ctx).WithValues("kind", k.kind.Name), events.Hole{Reason: reason})
	return false, nil
}

// unreadable is the reason of a gap where the bus cannot deliver a part of the log.
const unreadable = "a part of the log cannot be read"

// knownPosition returns how far the kind has been watched, as far as that is known without its contents: by
// this process, or by the end of the log. Of an epoch in which the log has nothing but what a relist
// recorded the version is unknown.
func (k *Reflector) knownPosition(ctx context.Context) (translate.Cursor, error) {
	if k.cursor.Version != "" {
		return k.cursor, nil
	}
	past, last := k.cursor, k.appender.Last()
	for at := last; at > 0 && last-at < kindlog.Depth; at-- {
		d, there, err := kindlog.At(ctx, k.bus, k.kind.Name, at)
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
