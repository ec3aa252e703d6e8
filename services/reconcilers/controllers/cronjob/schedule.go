package cronjob

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the zones of schedules, where the machine has none

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// plan is the schedule of a CronJob.
type plan struct{ cron.Schedule }

// parse reads a schedule in the time zone of the CronJob, which is known to be one.
// A zone in the schedule itself is honoured, and goes before that.
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

// namesZone tells whether a schedule names a time zone itself.
func namesZone(cj *batchv1.CronJob) bool { return strings.Contains(cj.Spec.Schedule, "TZ") }

// lastYear is the last year of which a moment has a JSON form.
const lastYear = 9999

// next is the first moment after another; ok is false when there is none, such as
// on the 31st of February.
func (p plan) next(after time.Time) (at time.Time, ok bool) {
	at = p.Next(after.UTC())
	return at, !at.IsZero() && at.Year() <= lastYear
}

// horizon is how far back a run can have been missed. It bounds the search for one
// where a CronJob does not say when it was made.
const horizon = 10 * 365 * 24 * time.Hour

// last is the last moment after begin and not after now; ok is false when there is
// none. How far back it has to look for one is tried out: a stretch in which there
// is none is doubled, and so holds few when there are some.
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

// newest goes on from a moment to the last one that is not after now.
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
	// Since is the moment up to which no run of this schedule is made up for, because
	// it was another one then; zero for the first schedule that was seen.
	Since time.Time `json:"since,omitzero"`
}

// delay is how long it may take until a change of a schedule is seen. Runs that were due
// for less than that are started.
const delay = 10 * time.Second

// schedule is what is to be noted of the schedule.
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

// many is how many moments may be missed before users are told that something is
// wrong with a clock, or with the deadline.
const many = 100

// missed tells whether more than [many] moments lie after begin and not after now.
func (p plan) missed(begin, now time.Time) bool {
	at, ok := begin, true
	for range many + 1 {
		if at, ok = p.next(at); !ok || at.After(now) {
			return false
		}
	}
	return true
}
