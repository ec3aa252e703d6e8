package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/translate"
)

const (
	// checkEvery is how soon a session acts on a reader's report of damage. checkStreamsEvery is how often
	// it checks the streams; checkStreamsIdle where nothing has been appended since, as in most kinds
	// most of the time.
	checkEvery        = time.Second
	checkStreamsEvery = 10 * time.Second
	checkStreamsIdle  = 2 * time.Minute
	// repairEvery bounds how often a reader's report has every object recorded again.
	repairEvery = time.Minute
)

// Report notes a reader's damage report; the reader repeats a report that is not heard.
func (k *Reflector) Report(d report.Damage) {
	k.mu.Lock()
	k.reported = &d
	k.mu.Unlock()
	signal(k.reports)
}

// noteFindings keeps the scrubber's findings until the session records them.
func (k *Reflector) noteFindings(found []events.Hole) {
	k.mu.Lock()
	k.findings = append(k.findings, found...)
	k.mu.Unlock()
	signal(k.reports)
}

// markDamaged has everything listed and compared, and logs the damage.
func (k *Reflector) markDamaged(log klog.Logger, h events.Hole) {
	k.expired, k.damaged, k.nextGap = true, true, h
	k.metrics.damage.WithLabelValues(string(k.kind.Name)).Inc()
	log.Error(nil, "The record is damaged; relisting the kind and recording a gap",
		"because", h.Reason, "from", h.From, "to", h.To)
}

// record appends a gap for each of the scrubber's findings.
func (k *Reflector) record(ctx context.Context) error {
	k.mu.Lock()
	findings := k.findings
	k.findings = nil
	k.mu.Unlock()
	if len(findings) == 0 {
		return nil
	}
	for _, h := range findings {
		klog.FromContext(ctx).Error(nil, "The record is damaged; recorded a gap", "kind", k.kind.Name, "because", h.Reason, "from", h.From, "to", h.To)
		k.metrics.damage.WithLabelValues(string(k.kind.Name)).Inc()
		k.metrics.gaps.WithLabelValues(string(k.kind.Name)).Inc()
		s := k.stamp(false)
		s.Hole = h
		if err := k.append(ctx, translate.Gap(k.kind.Name, k.cursor.Version, s)); err != nil {
			return err
		}
	}
	return k.mark(ctx)
}

// checkStreams returns an error when something is wrong with the log: a reader reports damage, or the log
// is not as the session left it.
func (k *Reflector) checkStreams(ctx context.Context) error {
	k.mu.Lock()
	d := k.reported
	k.reported = nil
	k.mu.Unlock()
	if d != nil && !k.agreesByNow(ctx, *d) {
		if err := k.reportedDamage(*d); err != nil {
			return err
		}
	}
	if err := k.record(ctx); err != nil {
		return err
	}
	if k.checkedAt.IsZero() { // the session has just read the streams
		k.checkedAt = time.Now()
	}
	if since := time.Since(k.checkedAt); since < checkStreamsEvery || since < checkStreamsIdle && k.atRest() {
		return nil
	}
	k.checkedAt, k.checkedEnd = time.Now(), k.appender.Last()
	k.bounds.DropIdle(k.checkedAt)
	if err := k.flush(ctx); err != nil {
		return err
	}
	log, err := k.bus.StreamState(ctx, subject.LogStream(k.kind.Name))
	switch {
	case errors.Is(err, bus.ErrNoStream):
		return fmt.Errorf("look at the log of %s: %w", k.kind.Name, err)
	case err != nil:
		return nil // the bus is unreachable; the next append fails
	case !log.Created.Equal(k.created), log.Last != k.appender.Last():
		return fmt.Errorf("look at the log of %s: %w", k.kind.Name, bus.ErrOvertaken) // the next session finds out why
	}
	k.noteLimits(ctx, log)
	return k.checkDropped(log)
}

// checkDropped returns an error when the log has dropped the last delta of an object that exists, as when
// its limits were lowered a lot at once. Then everything is listed and recorded again, at most once in
// repairEvery.
func (k *Reflector) checkDropped(log bus.State) error {
	if !k.counted || k.since == 0 || k.since >= log.First || time.Since(k.reportActedOn) < repairEvery {
		return nil
	}
	if k.since = k.places.Oldest(); k.since == 0 || k.since >= log.First {
		return nil
	}
	k.reportActedOn = time.Now()
	return fmt.Errorf("%w: the log has dropped objects that exist (message %d, and it begins with %d): keep more of it (--retention)", events.ErrDamaged, k.since, log.First)
}

// agreesByNow reports whether a suspicion needs no comparison: the log agrees by now with what the API
// server said of the object, or the log cannot be read and the reader will report again. A reader
// that has heard nothing for a while, since no watcher ran, suspects damage just when the new
// watchers record the change.
func (k *Reflector) agreesByNow(ctx context.Context, d report.Damage) bool {
	if !d.Suspected || d.About.Kind != k.kind.Name {
		return false
	}
	m, known, err := k.bus.Last(ctx, subject.LogStream(k.kind.Name), subject.Delta(d.About))
	switch {
	case err != nil:
		return true
	case !known:
		return false
	}
	delta, err := events.DecodeDelta(d.About, m)
	return err == nil && d.Settled(delta)
}

// reportedDamage returns an error when a reader has found damage after the last repair. Damage that returns
// within repairEvery lies where readers begin, so reportedDamage has every object recorded again behind it. A
// mere suspicion causes one comparison a minute at most.
func (k *Reflector) reportedDamage(d report.Damage) error {
	again := time.Since(k.reportActedOn) < repairEvery
	switch {
	case d.End < k.repairedAt, again && (d.Suspected || time.Since(k.recordAllAt) < repairEvery):
		return nil
	case again:
		k.recordAll, k.recordAllAt = true, time.Now()
	}
	k.reportActedOn = time.Now()
	return fmt.Errorf("%w: a reader found that %s", events.ErrDamaged, d.Hole.Reason)
}

// signal sends a token that makes a watch look again, unless one is pending.
func signal(look chan<- struct{}) {
	select {
	case look <- struct{}{}:
	default:
	}
}

// checkTimer says when a session checks the reports about its kind and the streams: every checkEvery
// while the kind changes, and every checkStreamsIdle while it does not. There are many kinds, and most
// rest most of the time.
type checkTimer struct {
	timer   *time.Timer
	resting bool
}

func newCheckTimer() *checkTimer { return &checkTimer{timer: time.NewTimer(checkEvery)} }

// wake ends the rest: something has happened.
func (l *checkTimer) wake() {
	if l.resting {
		l.resting = false
		l.timer.Reset(checkEvery)
	}
}

// again sets the timer; the session calls it after each look.
func (l *checkTimer) again(rest bool) {
	wait := checkEvery
	if l.resting = rest; rest {
		wait = checkStreamsIdle
	}
	l.timer.Reset(wait)
}

// atRest reports whether nothing has been appended since the last check of the log.
func (k *Reflector) atRest() bool { return k.appender.Last() == k.checkedEnd }
