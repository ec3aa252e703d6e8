package cronjob

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"pgregory.net/rapid"
)

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func scheduled(schedule, zone string) *batchv1.CronJob {
	cj := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: schedule}}
	if zone != "" {
		cj.Spec.TimeZone = &zone
	}
	return cj
}

// Upstream: computed with its own functions; where it loses runs of schedules that
// are not regular, ours are found.
func TestTheLastMomentThatWasMissed(t *testing.T) {
	for _, c := range []struct {
		schedule, zone   string
		begin, now, want string
		many             bool
	}{
		{"0 * * * *", "", "2026-01-01 00:10:00", "2026-01-01 00:59:59", "", false},
		{"0 * * * *", "", "2026-01-01 00:10:00", "2026-01-01 01:00:00", "2026-01-01 01:00:00", false},
		{"0 * * * *", "", "2026-01-01 01:00:00", "2026-01-01 05:30:00", "2026-01-01 05:00:00", false},
		{"* * * * *", "", "2026-01-01 00:00:00", "2026-01-01 03:00:30", "2026-01-01 03:00:00", true},
		{"* * * * *", "", "2026-01-01 00:00:00", "2026-01-01 01:40:59", "2026-01-01 01:40:00", false}, // a hundred
		{"* * * * *", "", "2026-01-01 00:00:00", "2026-01-01 01:41:00", "2026-01-01 01:41:00", true},
		{"@every 1m", "", "2026-01-01 00:00:10", "2026-01-01 01:40:59", "2026-01-01 01:40:10", false},
		{"@every 1m", "", "2026-01-01 00:00:10", "2026-01-01 01:41:10", "2026-01-01 01:41:10", true},
		{"* * * * *", "", "2026-01-01 02:57:10", "2026-01-01 03:00:30", "2026-01-01 03:00:00", false},
		{"0 9 * * 1-5", "", "2026-01-02 09:00:00", "2026-01-06 10:00:00", "2026-01-06 09:00:00", false},
		{"@every 1h", "", "2026-01-01 00:10:00", "2026-01-01 03:15:00", "2026-01-01 03:10:00", false},
		{"@every 1h", "", "2026-01-01 00:10:00", "2026-01-01 01:09:59", "", false},
		{"30 2 * * *", "Europe/Berlin", "2026-03-28 01:30:00", "2026-03-29 12:00:00", "", false},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24 00:30:00", "2026-10-25 00:30:05", "2026-10-25 00:30:00", false},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25 00:30:00", "2026-10-25 01:30:05", "2026-10-25 01:30:00", false},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24 00:30:00", "2026-10-25 12:00:00", "2026-10-25 01:30:00", false},
		{"0,5 0 * * *", "", "2026-01-02 00:05:00", "2026-01-03 12:00:00", "2026-01-03 00:05:00", false},
		{"0,5 0 * * *", "", "2026-01-02 00:00:00", "2026-01-03 12:00:00", "2026-01-03 00:05:00", false},
		{"0 0 29 2 *", "", "2024-02-29 00:00:00", "2028-03-01 00:00:00", "2028-02-29 00:00:00", false},
		{"TZ=Europe/Berlin 0 3 * * *", "America/New_York", "2026-01-01 00:00:00", "2026-01-01 02:30:00", "2026-01-01 02:00:00", false},
	} {
		plan, err := parse(scheduled(c.schedule, c.zone))
		if err != nil {
			t.Fatal(err)
		}
		begin, now := moment(t, c.begin), moment(t, c.now)
		last, ok := plan.last(begin, now)
		if got := last.UTC().Format("2006-01-02 15:04:05"); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s %s from %s to %s: %v, %v, want %s", c.schedule, c.zone, c.begin, c.now, got, ok, c.want)
		}
		if got := plan.missed(begin, now); got != c.many {
			t.Errorf("%s from %s to %s: many %v", c.schedule, c.begin, c.now, got)
		}
	}
}

func TestSchedulesThatAreNone(t *testing.T) {
	for _, schedule := range []string{"", "* * * *", "0 0 * * * *", "61 * * * *", "TZ=0", "TZ=Nowhere/Land * * * * *"} {
		if _, err := parse(scheduled(schedule, "")); err == nil {
			t.Errorf("%q can be read", schedule)
		}
	}
	plan, err := parse(scheduled("0 0 31 2 *", ""))
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := plan.next(moment(t, "2026-01-01 00:00:00")); ok {
		t.Errorf("the 31st of February is %v", at)
	}
	if at, ok := plan.last(time.Time{}, moment(t, "2026-01-01 00:00:00")); ok {
		t.Errorf("the last 31st of February was %v", at)
	}
}

// The search for the last scheduled time finds the same as stepping through all of them.
func TestTheLastMomentIsTheLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom([]string{"*", "*/7", "0", "5,6", "3-9/2"})
		schedule := strings.Join([]string{field.Draw(t, "minute"), field.Draw(t, "hour"), rapid.SampledFrom([]string{"*", "1", "*/9"}).Draw(t, "day"), "*", "*"}, " ")
		if rapid.IntRange(0, 3).Draw(t, "every") == 3 {
			schedule = "@every 97s"
		}
		plan, err := parse(scheduled(schedule, rapid.SampledFrom([]string{"", "Europe/Berlin"}).Draw(t, "zone")))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 100_000).Draw(t, "begin")) * time.Second)
		now := begin.Add(time.Duration(rapid.IntRange(0, 1_000_000).Draw(t, "passed")) * time.Second)
		var want time.Time
		for at, ok := plan.next(begin); ok && !at.After(now); at, ok = plan.next(at) {
			want = at
		}
		if got, ok := plan.last(begin, now); ok == want.IsZero() || ok && !got.Equal(want) {
			t.Fatalf("%s from %v to %v: %v, %v, want %v", schedule, begin, now, got, ok, want)
		}
	})
}

func TestTheNameOfARunIsItsMoment(t *testing.T) {
	cj := scheduled("0 * * * *", "")
	cj.Name = "cj"
	at := moment(t, "2026-01-01 01:00:00")
	if got := nameOf(cj, at); got != "cj-29453820" {
		t.Errorf("the name is %s", got)
	}
	for _, c := range []struct {
		name, annotation string
		want             time.Time
	}{
		{"cj-29453820", "2026-01-01T02:00:00+01:00", at},
		{"cj-29453820", "2026-01-01T01:00:07Z", at.Add(7 * time.Second)},
		{"cj-29453820", "2026-01-01T03:00:00Z", time.Time{}},
		{"cj-29453820", "", time.Time{}},
		{"cj-1767229200", "", time.Time{}},
		{"cj-manual-x7d", "2026-01-01T01:00:00Z", time.Time{}},
		{"another-29453820", "2026-01-01T01:00:00Z", time.Time{}},
	} {
		job := aJobOf(cj, c.name)
		job.Annotations = map[string]string{batchv1.CronJobScheduledTimestampAnnotation: c.annotation}
		if got, ok := momentOf(cj, job); !got.Equal(c.want) || ok == c.want.IsZero() {
			t.Errorf("%s, %s is the run of %v, %v, want %v", c.name, c.annotation, got, ok, c.want)
		}
	}
}

// No scheduled time, and so no wake, exceeds the last year that JSON can represent.
func TestNoMomentBeyondTheLastYear(t *testing.T) {
	plan, err := parse(scheduled("0 0 1 1 *", ""))
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := plan.next(moment(t, "9999-06-01 00:00:00")); ok {
		t.Errorf("the schedule has a moment at %v", at)
	}
	if at, ok := plan.next(moment(t, "9998-06-01 00:00:00")); !ok || at.Year() != lastYear {
		t.Errorf("the next moment is %v, %v", at, ok)
	}
}
