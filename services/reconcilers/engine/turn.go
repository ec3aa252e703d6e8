package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
)

// answer is the result of asking the controller about a key.
type answer struct {
	decision reconcile.Decision
	ok       bool
	broken   string // why the controller gave no decision

	write, status bool // the lanes were open before the snapshot was taken
	seen          events.Position
	digest        uint64
	epochs        events.Epochs
	heard         map[events.Lane]events.Heard
	object        metav1.Object // the key's own object

	began time.Time    // when the controller was asked; zero where no cause is traced
	trace events.Trace // the parent of the spans of its turn
	first bool         // no cause is known that is traced
}

// takeTurn gives a key its turn, as far as it may have one now.
func (d *Engine) takeTurn(e *entry) {
	switch {
	case e.round != nil:
		e.missed = true
		return
	case !e.dirty, e.recalling > 0, e.parking != "":
		return // the end of the round, recall or parking looks again
	case d.now.Before(e.until):
		d.requeueAt(e, e.until)
		return
	}
	if e.mustRecall && !e.known {
		d.recall(e)
		return
	}
	d.dropReturned(e)
	if e.known && !d.mayWrite(e) && (!e.mayReport() || d.now.Before(d.progressAt(e))) {
		d.tally.Shut++
		d.reportHeld(e)
		d.requeueAtProgress(e)
		return // both lanes are shut; the outcome, effect or alarm that opens them looks again
	}
	began := d.settings.Trace.Now(traceOf(e.Triggers))
	a := d.ask(e)
	if a.began, a.trace = began, traceOf(e.Triggers); began.IsZero() {
		a.began = d.settings.Trace.Now(a.trace) // a traced change came meanwhile
	}
	a.first = e.first && a.trace.Parent == ""
	if a.broken != "" {
		d.traceBroken(e, &a)
		d.countBroken(e, a.broken)
		return
	}
	d.reportGauges(e.key, a.decision.Figures)
	if len(a.decision.Commands) > 0 {
		d.storeDecision(e, a)
		return
	}
	d.tally.Nothing++
	d.decidedAt = d.now
	d.answered(events.Outcome{}, 0)
	if overdue := !a.decision.WakeAt.IsZero() && !a.decision.WakeAt.After(d.now); a.decision.Retry || overdue {
		d.retry(e, a)
		return
	}
	e.retries = 0
	d.traceNoCommands(e, &a)
	r := d.beginRound(e, false, time.Time{})
	d.schedule(e, r, a)
	d.endIdleRound(e, r)
	d.forget(e, a)
}

// ask takes a snapshot and asks the controller. It turns a panic into an answer: one poisoned
// object must not end the process.
func (d *Engine) ask(e *entry) (a answer) {
	a.write, a.status = e.known && d.mayWrite(e), e.known && e.mayReport()
	defer func() {
		if p := recover(); p != nil {
			a = answer{broken: fmt.Sprintf("panic: %v", p)}
		}
	}()
	d.cache.View(d.name, d.lastOf(e.key), func(s cache.Snapshot) {
		d.takeChanges(s.TakeChanges()) // so that the turn names every change that asked for it
		a.decision, a.ok = d.controller.Ask(s, e.key, d.now)
		if len(a.decision.Commands) == 0 {
			return // most turns decide nothing, and record nothing
		}
		a.write = a.write && (e.status.settled() || a.decision.StatusBlind)
		if (a.write || a.status) && (s.Inconsistent() || d.skewed(s)) {
			a.write, a.status = false, false
			if len(d.inconsistent) == 0 {
				d.heldSince = d.now
			}
			d.inconsistent = append(d.inconsistent, e)
		}
		if a.status && !a.write && a.decision.Sure {
			a.status, e.unsure = false, d.now
		}
		a.seen, a.epochs = s.Seen(), s.Epochs()
		a.digest, a.heard = s.Digest(a.seen), e.heardOutcomes()
		own := d.own(e.key)
		a.object, _ = s.Get(own.Kind, own.Namespace, own.Name)
	})
	return a
}

// withinPromise reports whether commands that are about to be stored are within what the controller
// withinPromise to write. A command that is not counts as an attempt at the key that broke. Commands
// that the fence holds back are not checked, because they are decided again.
func (d *Engine) withinPromise(e *entry, a *answer, next ...events.Command) bool {
	a.broken = d.outsidePromise(e.key, *a, next)
	if a.broken != "" {
		d.traceBroken(e, a)
		d.countBroken(e, a.broken)
	}
	return a.broken == ""
}

// outsidePromise describes the first command that the controller has not promised, or returns "".
func (d *Engine) outsidePromise(key events.Key, a answer, next []events.Command) string {
	t := events.Turn{Key: key}
	if a.object != nil {
		t.Kind, t.UID, t.ResourceVersion = d.own(key).Kind, a.object.GetUID(), a.object.GetResourceVersion()
	}
	fits := d.described.Fits(t, func() metav1.Object { return a.object }, func(events.Ref) metav1.Object { return nil })
	for _, c := range next {
		if !d.described.Writes.Allows(c) {
			return fmt.Sprintf("%s of %v (subresource %q) is not among what the controller may write", c.Verb, c.Ref(), c.Subresource)
		}
		if err := fits(c); err != nil && !errors.Is(err, events.ErrSuperseded) { // the writer checks these
			return fmt.Sprintf("%s of %v (subresource %q) is beyond what the controller may write: %v", c.Verb, c.Ref(), c.Subresource, err)
		}
		if d.described.Silent && c.Lane() == events.LaneStatus {
			return fmt.Sprintf("%s of %v (subresource %q) is a report, and the controller is to be silent", c.Verb, c.Ref(), c.Subresource)
		}
	}
	return ""
}

// storeDecision stores the commands of a decision, lane by lane, as far as the fence allows. Commands
// that the fence holds back are decided again.
func (d *Engine) storeDecision(e *entry, a answer) {
	if !e.known {
		if d.withinPromise(e, &a, a.decision.Commands...) {
			d.recall(e)
		}
		return
	}
	write, status := a.decision.In(events.LaneWrite), a.decision.In(events.LaneStatus)
	var held time.Time // until when a part must wait; zero where an event ends the wait
	// The engine never sees an Event come back, so no write can wait for one.
	first := a.decision.ReportFirst && !onlyEvents(status)
	doWrite, writeHeld := laneMayStore(write, a.write && !first, latest(d.backoff(e, &e.write, a), e.write.noOps.waits(write.Commands)), d.now)
	ahead := doWrite && a.decision.StatusBlind
	if ahead && len(status.Commands) > 0 && e.passedOver.IsZero() {
		e.passedOver = d.now
	}
	var pace time.Time
	if !first {
		pace = d.paced(e, ahead, a.decision.Passing)
	}
	doStatus, statusHeld := laneMayStore(status, a.status, latest(latest(d.backoff(e, &e.status, a), pace), e.status.noOps.waits(status.Commands)), d.now)
	if len(write.Commands) > 0 && !doWrite && a.decision.Sure && onlyEvents(status) {
		doStatus, statusHeld = false, writeHeld
	}
	dropped := len(write.Commands) > 0 && !doWrite || len(status.Commands) > 0 && !doStatus
	if dropped {
		d.tally.Shut++
		held = earliest(writeHeld, statusHeld)
	}
	if doWrite && !d.withinPromise(e, &a, write.Commands...) || doStatus && !d.withinPromise(e, &a, status.Commands...) {
		return
	}
	if doWrite || doStatus {
		d.traceDecision(e, &a)
	}
	r := d.beginRound(e, dropped, held)
	d.schedule(e, r, a)
	if doWrite {
		d.store(e, r, a, write, events.LaneWrite)
	}
	if doStatus {
		d.store(e, r, a, status, events.LaneStatus)
	}
	if doWrite || doStatus {
		e.since = time.Time{}
	}
	d.endIdleRound(e, r)
}

// onlyEvents reports whether a part of a decision has only Kubernetes Events, which inform users
// and change nothing. Events that accompany a write wait for it: emitted alone they would be
// emitted again at once, because the next view is the same.
func onlyEvents(part reconcile.Decision) bool {
	return !slices.ContainsFunc(part.Commands, func(c events.Command) bool { return c.Verb != events.VerbRecord })
}

// laneMayStore reports whether a part of a decision may be stored now, and otherwise until when it has
// to wait, if only time holds it back.
func laneMayStore(part reconcile.Decision, open bool, notBefore, now time.Time) (pass bool, until time.Time) {
	switch {
	case len(part.Commands) == 0 || !open:
		return false, time.Time{}
	case now.Before(notBefore):
		return false, notBefore
	default:
		return true, time.Time{}
	}
}

// beginRound begins a round. When a part of the decision was dropped, the key stays dirty.
func (d *Engine) beginRound(e *entry, dropped bool, held time.Time) *round {
	r := &round{}
	e.round, e.missed = r, false
	if dropped && !held.IsZero() {
		d.requeueAt(e, held)
	}
	if dropped {
		return r
	}
	e.dirty, r.whole, r.last = false, true, e.newest()
	r.waiting, e.Oldest = e.Oldest, nil
	r.first, e.first = e.first, false
	return r
}

// endIdleRound ends a round that waits for no answer.
func (d *Engine) endIdleRound(e *entry, r *round) {
	if r.left == 0 {
		r.left = 1
		d.answerRound(e, false)
	}
}

// answerRound counts an answer that a round waited for. After a failed round the key wants another
// turn.
func (d *Engine) answerRound(e *entry, failed bool) {
	r := e.round
	if r == nil {
		return
	}
	r.failed = r.failed || failed
	if r.left--; r.left > 0 {
		return
	}
	e.round = nil
	if r.failed {
		for _, b := range r.waiting {
			e.AddOldest(b)
		}
		e.dirty, e.first = e.dirty || e.parking == "" && d.owns(e.key), e.first || r.first
		d.requeue(e)
		d.dropUnowned(e)
		return
	}
	if r.whole {
		d.clearBroken(e)
		e.dropServed(r.last)
	}
	if !e.dirty {
		e.Causes, e.since = cache.Causes{}, time.Time{}
	}
	if e.missed {
		e.missed = false
		d.requeue(e)
	}
	d.dropUnowned(e)
}

func (d *Engine) store(e *entry, r *round, a answer, part reconcile.Decision, of events.Lane) {
	l := e.lane(of)
	l.noOps.decide(part.Commands)
	t := events.Turn{
		Controller: d.name, Key: e.key, Lane: of,
		Triggers: slices.Clone(e.Triggers), Seen: a.seen, Epochs: a.epochs, Now: d.now,
		Digest: a.digest, Heard: a.heard, Settings: d.described.Settings,
		Because: part.Because, Commands: part.Commands, Code: d.settings.Code,
		Attempt: l.failures + 1, Trace: a.trace, Token: d.lease.token,
	}
	if a.object != nil {
		t.Kind, t.UID = d.own(e.key).Kind, a.object.GetUID()
		t.ResourceVersion, t.Generation = a.object.GetResourceVersion(), a.object.GetGeneration()
	}
	if !part.WakeAt.IsZero() {
		at := part.WakeAt
		t.WakeAt = &at
	}
	l.tried, l.saw, l.storing = t.ResourceVersion, t.Seen, t.Now
	d.beginStages(e, l)
	d.measure(l, part.Figures)
	t.Pack()
	r.left++
	d.storing++
	d.io.Store(t, l.turn)
}

// retry asks about a key again after its back-off.
func (d *Engine) retry(e *entry, a answer) {
	e.retries++
	d.tally.Retries++
	r := d.beginRound(e, true, d.now.Add(d.settings.delay(e.retries)))
	d.schedule(e, r, a)
	d.endIdleRound(e, r)
}

// schedule sets the wake that a decision asks for, if it is in the future.
func (d *Engine) schedule(e *entry, r *round, a answer) {
	if a.decision.WakeAt.After(d.now) {
		d.wakeAt(e, r, a.decision.WakeAt, a.decision.Because, a.trace)
	}
}

// wakeAt stores a wake in the stream, for the replica that owns the key then, and sets a local
// timer, which is more precise. The stream keeps only the last wake of a key, so a later wake
// never replaces an earlier one.
func (d *Engine) wakeAt(e *entry, r *round, at time.Time, because string, trace events.Trace) {
	if e.wake.Equal(at) || e.wake.After(d.now) && e.wake.Before(at) {
		return
	}
	e.wake = at
	d.timers.Set(at, func() {
		if e.wake.Equal(at) {
			e.wake = time.Time{}
			e.woken(trace)
			d.enqueue(e, workqueue.AfterChange)
		}
	})
	r.left++
	d.storing++
	d.io.Schedule(events.Wake{Controller: d.name, Key: e.key, At: at, Because: because, Trace: trace})
}

// Scheduled answers [IO.Schedule].
func (d *Engine) Scheduled(key events.Key, at time.Time, err error) {
	d.storing--
	d.recordReply(&d.storeRefusal, err)
	e, ok := d.entries[key]
	if !ok {
		return
	}
	if err != nil {
		if e.wake.Equal(at) {
			e.wake = time.Time{}
		}
		d.retryLater(e)
	}
	d.answerRound(e, err != nil)
}

// forget deletes the entry of a key that waits for nothing, if the key has no object or has never had a
// turn. Most keys never have one, such as the Pods of the garbage collector. What the streams know of
// the key is recalled before its next turn. Of a controller with gauges the entry stays, because the
// gauges of its key are dropped with it.
func (d *Engine) forget(e *entry, a answer) {
	idle := !e.dirty && e.round == nil && e.write.settled() && e.status.settled() && e.wake.IsZero() && !e.Queued
	if (!a.ok || e.hadNoTurn() && !d.hasGauges()) && idle && d.entries[e.key] == e {
		delete(d.entries, e.key)
		delete(d.pending, e)
	}
}

// hadNoTurn reports whether the entry knows of no turn of its key, of no outcome, and of no attempt that
// failed.
func (e *entry) hadNoTurn() bool {
	return e.write.blank() && e.status.blank() && e.recalling == 0 && !e.mustRecall && e.until.IsZero() && e.broken == 0 &&
		e.parking == "" && e.parked == nil && !e.message
}

func (l *lane) blank() bool {
	return l.turn == 0 && l.outcome == 0 && !l.remember && l.storing.IsZero() && !l.suspected && !l.repeating
}

func (d *Engine) requeueAtProgress(e *entry) {
	if at := d.progressAt(e); e.mayReport() && d.now.Before(at) {
		d.requeueAt(e, at)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
