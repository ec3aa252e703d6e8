package cronjob

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the time zones of schedules, for machines without a zone database

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// plan is the schedule of a CronJob.
type plan struct{ cron.Schedule }

// parse parses a schedule in the time zone of the CronJob, which must be valid. A zone in
// the schedule itself takes precedence.
//
// Upstream: pkg/util/parsers; the library panics at some texts.
func parse(cj *batchv1.CronJob) (p plan, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("invalid schedule format: %v", cause)
		}
	}()
	text := cj.Spec.Schedule
	if zone := cj.Spec.TimeZone; zone != nil && !namesZone(cj) {
		text = "TZ=" + *zone + " " + text
	}
	p.Schedule, err = cron.ParseStandard(text)
	return p, err
}

// namesZone reports whether a schedule names a time zone itself.
func namesZone(cj *batchv1.CronJob) bool { return strings.Contains(cj.Spec.Schedule, "TZ") }

// lastYear is the last year that a time in JSON can have.
const lastYear = 9999

// next returns the first scheduled time after another; ok is false if there is none, as
// for the 31st of February.
func (p plan) next(after time.Time) (at time.Time, ok bool) {
	at = p.Next(after.UTC())
	return at, !at.IsZero() && at.Year() <= lastYear
}

// horizon is the maximum age of a missed run. It bounds the search for a CronJob without
// a creation time.
const horizon = 10 * 365 * 24 * time.Hour

// last returns the last scheduled time after begin and not after now; ok is false if
// there is none. It doubles the interval that it searches back from now until that has a
// scheduled time, so the interval has only a few of them.
//
// Upstream: mostRecentScheduleTime in pkg/controller/cronjob/utils.go guesses it
// from the distance of the first two after begin.
func (p plan) last(begin, now time.Time) (last time.Time, ok bool) {
	if every, ok := p.Schedule.(cron.ConstantDelaySchedule); ok {
		first := every.Next(begin.UTC())
		if first.After(now) {
			return time.Time{}, false
		}
		return first.Add(now.Sub(first).Truncate(every.Delay)), true
	}
	if oldest := now.Add(-horizon); begin.Before(oldest) {
		begin = oldest
	}
	for back := time.Minute; ; back *= 2 {
		from := now.Add(-back)
		reaches := !from.After(begin)
		if reaches {
			from = begin
		}
		at, ok := p.next(from)
		if ok && !at.After(now) {
			return p.newest(at, now), true
		}
		if reaches {
			return time.Time{}, false
		}
	}
}

// newest steps from a scheduled time to the last one that is not after now.
func (p plan) newest(at, now time.Time) time.Time {
	for {
		next, ok := p.next(at)
		if !ok || next.After(now) {
			return at
		}
		at = next
	}
}

// note is what a report keeps of the schedule for the turns after it.
type note struct {
	Schedule string `json:"schedule"`
	Zone     string `json:"zone,omitempty"`
	// Since is the time up to which no run of this schedule is made up for, because the
	// CronJob had another schedule then; zero for the first schedule that the controller saw.
	Since time.Time `json:"since,omitzero"`
}

// delay is the maximum time until the controller sees a change of a schedule. Runs that
// were due for less than that are started.
const delay = 10 * time.Second

// schedule returns the note about the schedule.
//
// Upstream: updateCronJob, which puts a CronJob with another schedule into its queue for
// the next moment of that.
func (v View) schedule(now time.Time) note {
	n := note{Schedule: v.CronJob.Spec.Schedule}
	if zone := v.CronJob.Spec.TimeZone; zone != nil {
		n.Zone = *zone
	}
	switch {
	case v.Noted == nil:
		return n
	case v.Noted.Schedule == n.Schedule && v.Noted.Zone == n.Zone:
		return *v.Noted
	default:
		n.Since = now.Add(-delay).UTC()
		return n
	}
}

// many is the number of missed times above which an Event reports that a clock or the
// deadline is wrong.
const many = 100

// missed reports whether more than [many] scheduled times lie after begin and not after now.
func (p plan) missed(begin, now time.Time) bool {
	at, ok := begin, true
	for range many + 1 {
		if at, ok = p.next(at); !ok || at.After(now) {
			return false
		}
	}
	return true
}
