package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
)

// recall looks up the last turns and outcomes of a key in the streams.
func (d *Engine) recall(e *entry) {
	e.unsettled = !e.write.settled() || !e.status.settled()
	d.recallLane(e, events.LaneWrite)
	if !d.described.Silent {
		d.recallLane(e, events.LaneStatus)
	}
}

func (d *Engine) recallLane(e *entry, of events.Lane) {
	e.recalling++
	d.storing++
	d.io.Recall(e.key, of)
}

// Recalled answers [IO.Recall].
func (d *Engine) Recalled(key events.Key, of events.Lane, past Past, err error) {
	d.storing--
	d.recordReply(&d.recallRefusal, err)
	e, ok := d.entries[key]
	if !ok {
		return
	}
	if of == events.LanePark {
		d.parkRecalled(e, past, err)
		return
	}
	if e.recalling--; err != nil {
		e.recallFailed = true
	} else {
		d.merge(e, of, past)
	}
	if e.recalling > 0 {
		return
	}
	if e.recallFailed {
		e.recallFailed = false
		d.dropSuspicions(e)
		d.retryLater(e)
		d.dropUnowned(e)
		return
	}
	e.known, e.mustRecall = true, false
	d.dropReturned(e)
	d.checkRecalledEffects(e)
	d.repeat(e)
	if e.unsettled && e.write.settled() && e.status.settled() {
		d.enqueue(e, workqueue.AfterRecall) // the engine missed the outcome
	}
	d.requeueAs(e, workqueue.AfterRecall)
	d.dropUnowned(e)
}

// checkRecalledEffects checks at once for effects that came and went before this engine opened.
func (d *Engine) checkRecalledEffects(e *entry) {
	if len(e.write.effects)+len(e.status.effects) > 0 {
		d.checkEffects(e)
	}
}

func (d *Engine) merge(e *entry, of events.Lane, past Past) {
	l := e.lane(of)
	// The stream may have dropped the turn by its age. The next turn is stored behind the last
	// one that the stream has now, whatever this engine has seen before.
	heard := l.outcome
	if l.outlived(past) {
		l.outcome = 0
	}
	decided := time.Time{}
	if past.Turn != nil {
		l.tried, decided = past.Turn.ResourceVersion, past.Turn.Now
	}
	d.setTurn(l, past.Sequence, decided)
	if l.suspected {
		l.past = past.Turn
	}
	if o := past.Outcome; o != nil && o.Turn > l.outcome {
		failures := 1
		if past.Turn != nil && o.Turn == past.Sequence {
			failures = max(past.Turn.Attempt, 1)
		}
		d.applyOutcome(e, l, *o, failures)
		l.turn, l.decided = past.Sequence, decided
	} else if o != nil && o.Turn == l.outcome && past.Turn != nil && o.Turn == past.Sequence && l.failures > 0 {
		l.failures = max(l.failures, past.Turn.Attempt)
	}
	if past.Turn != nil && l.failures > 0 {
		l.saw = past.Turn.Seen
	}
	// The stream may not hold the turn of an outcome, because it lost its end or was recreated.
	// That outcome must not count for the next turn with that sequence. The engine awaits what
	// it reports as applied all the same.
	if l.outcome = min(l.outcome, past.Sequence); past.Dropped {
		l.outcome = past.Sequence
	}
	if heard > past.Sequence && l.outcome < past.Sequence {
		e.recallFailed = true // the outcome that was heard may be newer than the recalled ones
	}
	d.awaitPositions(e, l, past.Turn)
	d.watchOutcome(e, of)
}

// outlived reports whether the newest outcome of a lane answers another turn than the one that
// the stream has at that sequence, or one that the stream does not have.
func (l *lane) outlived(past Past) bool {
	if l.outcome < past.Sequence {
		return false
	}
	known := l.outcome == past.Sequence && l.turn == past.Sequence
	return !known || past.Turn != nil && !sameMoment(l.decided, past.Turn.Now)
}

// sameMoment reports whether two moments may be the same one; zero means not known.
func sameMoment(a, b time.Time) bool { return a.IsZero() || b.IsZero() || a.Equal(b) }

// ignoreReplaced ignores the outcome of a turn that was lost with the end of its stream, and whose
// sequence the last turn has taken: the last turn is still in flight. It has the key recalled,
// so that the engine awaits what the lost turn did.
func (d *Engine) ignoreReplaced(e *entry, l *lane, o events.Outcome) bool {
	if o.Turn != l.turn || o.IsOf(l.turn, l.decided) {
		return false
	}
	e.invalidate()
	return true
}

// ignoreForged ignores the outcome of a forged turn. The forged turn may be stored behind a turn in
// flight, and its refusal must not count as that turn's outcome. The key is recalled instead.
// The recall finds a turn without an outcome, which the engine stores again without commands
// after Orphan.
func (d *Engine) ignoreForged(e *entry, l *lane, o events.Outcome) bool {
	if !o.Forged() || o.Turn == l.turn {
		return false
	}
	e.invalidate()
	return true
}

// Invalidate says that the engine may have missed turns or outcomes. Every key has to be recalled
// before its next turn, and a key that awaits an outcome or an effect at once.
func (d *Engine) Invalidate() {
	for _, e := range d.sorted() {
		if e.invalidate(); !e.write.settled() || !e.status.settled() {
			e.mustRecall = true
			d.enqueue(e, workqueue.WhenIdle)
		}
		d.requeue(e)
	}
}

// invalidate has a key recalled before its next turn. A recall in flight does not count: it began
// before there was a reason for it, and one half of it may be merged already.
func (e *entry) invalidate() {
	e.known = false
	e.recallFailed = e.recalling > 0
}

// Lost says that a stream of this controller has lost messages that the bus had acknowledged:
// turns whose changes were dealt with, outcomes that a fence rests on, or wakes. The engine
// recalls every key, asks about it again, and sets its wake anew.
func (d *Engine) Lost(stream string) {
	keys, _ := d.keys()
	for _, e := range d.sorted() {
		switch stream {
		case subject.WakeStream:
			e.wake = time.Time{}
		case subject.OutcomeStream(d.name):
			// The record has lost outcomes that this engine has heard: a turn whose outcome the
			// stream lacks is stored again, and then gets one.
			e.write.outcome, e.status.outcome = 0, 0
		}
		e.invalidate()
	}
	for _, k := range keys {
		if d.owns(k) {
			d.entry(k).mustRecall = stream != subject.WakeStream
		}
	}
	for _, e := range d.sorted() {
		d.enqueue(e, workqueue.WhenIdle)
	}
}

// The fence waits for the effects of a key's last turn, and assumes that the engine that
// decided that turn had seen the effects of earlier ones. If the turn is another replica's, or
// of a process that is gone, this engine is another one. It may lag behind earlier creates, and
// a last turn that did nothing tells it nothing about them. So no engine decides on an older
// view than the last turn did: each kind has to be folded up to the position that the last turn
// had seen. If a stream has lost that position, the watcher detects it and reports the objects
// again, or continues where the stream ends; a mark says when that is done.

// awaitPositions has a lane wait for the positions that its last turn had seen.
func (d *Engine) awaitPositions(e *entry, l *lane, last *events.Turn) {
	l.effects = slices.DeleteFunc(l.effects, func(u effect) bool { return u.Seen > 0 })
	if last == nil {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(last.Seen)) {
		if seen := last.Seen[kind]; d.reads(kind) && d.position(kind) < seen {
			u := cache.Effect{Result: events.Result{Ref: events.Ref{Kind: kind}, Version: newest(l.last, l.turn)}, Seen: seen}
			l.effects = append(l.effects, effect{Effect: u, discovery: d.discoveries + 1, since: d.now})
		}
	}
	d.awaitEffects(e, l)
}

// newest is the newest version in the outcome of a turn; "" when the outcome is of another
// turn, or has no version.
func newest(o events.Outcome, turn uint64) (version string) {
	if o.Turn != turn {
		return ""
	}
	for _, r := range o.Results {
		if r.Version != "" && kinds.CompareVersions(r.Version, version) > 0 {
			version = r.Version
		}
	}
	return version
}

// seen keeps the effects that wait for a position that a turn had seen. The outcome of that
// turn, which may come later than the recall of the turn, does not replace them.
func seen(effects []effect) []effect {
	return slices.DeleteFunc(effects, func(u effect) bool { return u.Seen == 0 })
}

// recallForeign has the key recalled when an outcome is of a turn that this engine did not store:
// only a recall can tell which positions that turn had seen.
func (d *Engine) recallForeign(e *entry, l *lane, turn uint64) {
	if turn > l.turn && l.storing.IsZero() && e.recalling == 0 {
		e.known = false
	}
}

// Orphans. A turn whose outcome never comes would block its key for ever. That happens when a
// writer acknowledged the turn and the end of the outcome stream was lost, when the writers'
// consumer skipped the turn, or when the turn or outcome cannot be decoded. Writers report the
// turns that they have in flight. A turn that has waited for [Settings].Orphan, and that no
// writer has in flight although there are writers, is stored again: with its own sequence as
// the expected last one, so that only one of many engines succeeds; and marked as a repetition,
// so that a writer checks first which commands are done. The repetition replaces the turn: a
// writer that gets the older one afterwards finds the newer one and skips the older.

// MaxHeartbeatAge is the greatest age of a writer's heartbeat by which the engine takes writers as
// present.
const MaxHeartbeatAge = 2 * time.Second

// inFlightKept is the number of turns in flight up to which old reports of them are not removed.
const inFlightKept = 1024

// mostInFlight bounds the turns in flight. A process that may publish on the writers' topic can
// report turns that do not exist, if heartbeats are not signed. Without room, a turn that is in
// flight may be stored again, which does no harm.
const mostInFlight = 1 << 16

// Heartbeat takes in which turns a writer has in flight.
func (d *Engine) Heartbeat(b report.Heartbeat) {
	d.writersSeen = d.now
	d.hearLease(b)
	turns := b.InFlight(d.name)
	for _, turn := range turns {
		if _, known := d.inFlight[turn]; known || len(d.inFlight) < mostInFlight {
			d.inFlight[turn] = d.now
		}
	}
	if slices.Contains(b.Full, d.name) && len(turns) > 0 {
		d.writerReached, d.writerFullAt = slices.Max(turns), d.now
	}
	if len(d.inFlight) > inFlightKept { // some were reported after their outcome had come
		maps.DeleteFunc(d.inFlight, func(_ uint64, at time.Time) bool { return d.now.Sub(at) > d.settings.Orphan })
	}
}

// watchOutcome sets a timer that checks whether the last turn of a lane has got its outcome.
func (d *Engine) watchOutcome(e *entry, of events.Lane) {
	l := e.lane(of)
	if l.turn <= l.outcome || l.watched {
		return
	}
	l.watched = true
	d.markPending(e)
	d.timers.Set(d.now.Add(d.settings.Orphan), func() {
		l.watched = false
		d.checkOutcome(e, of)
	})
}

// checkOutcome recalls a key once the last turn of a lane has had no outcome, and has been in flight
// at no writer, for long enough. Each repetition gets twice the time, because the writers may
// only be overloaded.
func (d *Engine) checkOutcome(e *entry, of events.Lane) {
	l := e.lane(of)
	if d.entries[e.key] != e || l.turn <= l.outcome {
		return
	}
	quiet := latest(l.since, d.inFlight[l.turn])
	patience := d.settings.Orphan << min(l.repeats, 5)
	busy := e.round != nil || e.recalling > 0 || l.repeating
	behind := l.turn > d.writerReached && d.now.Sub(d.writerFullAt) <= MaxHeartbeatAge
	if busy || behind || d.now.Before(quiet.Add(patience)) || d.now.Sub(d.writersSeen) > MaxHeartbeatAge {
		d.watchOutcome(e, of)
		return
	}
	l.suspected = true
	d.recall(e)
}

// dropSuspicions defers the suspicions of a key whose recall failed.
func (d *Engine) dropSuspicions(e *entry) {
	for _, of := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		l := e.lane(of)
		l.suspected, l.past = false, nil
		d.watchOutcome(e, of)
	}
}

// repeat stores the suspected turns again whose outcomes the streams do not have either.
func (d *Engine) repeat(e *entry) {
	for _, of := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		l := e.lane(of)
		turn := l.past
		l.past = nil
		if !l.suspected {
			continue
		}
		l.suspected = false
		if l.turn <= l.outcome {
			continue
		}
		if turn == nil {
			// Its commands are unknown. The memory has seen the ones that were carried out, or
			// will.
			turn = &events.Turn{
				Controller: d.name, Key: e.key, Lane: of, Now: d.now, Code: d.settings.Code, Token: d.lease.token,
				Because: fmt.Sprintf("turn %d cannot be read any more", l.turn),
			}
		}
		again := *turn
		again.Repeats = l.turn
		l.repeating, l.storing = true, again.Now
		d.storing++
		d.io.Store(again, l.turn)
	}
}

// repeated takes in the answer to the storing of a repetition.
func (d *Engine) repeated(e *entry, of events.Lane, sequence uint64, decided time.Time, err error) {
	l := e.lane(of)
	l.repeating = false
	if err != nil {
		e.known = false // another replica was first, or it is not known what is stored
	} else {
		d.tally.Repeats++
		l.repeats++
		d.recordStored(e, l, sequence, decided)
	}
	d.watchOutcome(e, of)
	d.requeue(e)
	d.dropUnowned(e)
}

// setTurn records the sequence of a lane's last turn, and when it was decided.
func (d *Engine) setTurn(l *lane, sequence uint64, decided time.Time) {
	if l.turn != sequence || !sameMoment(l.decided, decided) {
		l.since = d.now
	}
	l.turn, l.decided = sequence, decided
}
