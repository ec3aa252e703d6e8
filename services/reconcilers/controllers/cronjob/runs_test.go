package cronjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// The delay of a run is counted in upstream's buckets, each twice as large as the one
// before, from one second on.
func TestHowLateARunIsStarted(t *testing.T) {
	next := 1.0
	for _, b := range skew.Buckets {
		if b != next {
			t.Errorf("a bucket is %v, want %v", b, next)
		}
		next *= 2
	}
	if len(skew.Buckets) != 10 {
		t.Errorf("there are %d buckets", len(skew.Buckets))
	}
	v := View{CronJob: aCronJob("")}
	v.CronJob.Spec.Schedule, v.CronJob.CreationTimestamp.Time = "* * * * *", now.Add(-time.Hour)
	at := now.Truncate(time.Minute).Add(7 * time.Second)
	figures := decide(v, at).Figures
	if len(figures) != 1 || figures[0].Metric != skew.Name || figures[0].Value != 7 {
		t.Errorf("a run that is 7 s late is told of as %v", figures)
	}
}

// The name of a run consists of its CronJob's name and a minute.
func TestWhichMinuteANameIs(t *testing.T) {
	cj := aCronJob("")
	for name, want := range map[string]string{cj.Name + "-60": "1970-01-01T01:00:00Z", "other-60": "", cj.Name + "-x": "", cj.Name + "60": "", cj.Name + "-": ""} {
		got := ""
		if at, ok := minuteOf(cj, name); ok {
			got = at.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s is of %q, want %q", name, got, want)
		}
	}
}

// A run is blocked only if another Job has its name, and only a Job that this
// controller's delete removed at once is not reported as missing.
func TestWhatBecameOfJobs(t *testing.T) {
	ref := func(name string) events.Ref { return events.Ref{Kind: kinds.Jobs.Name, Namespace: "batch", Name: name} }
	for what, c := range map[string]struct {
		did            events.Result
		taken, deleted bool
	}{
		"nothing":                    {events.Result{}, false, false},
		"the name was another's":     {events.Result{Status: events.Conflict, Ref: ref("a"), UID: "u"}, true, false},
		"another name was another's": {events.Result{Status: events.Conflict, Ref: ref("b"), UID: "u"}, false, false},
		"there was another conflict": {events.Result{Status: events.Conflict, Ref: ref("a")}, false, false},
		"it was created":             {events.Result{Status: events.Applied, Ref: ref("a"), UID: "u"}, false, false},
		"it was deleted":             {events.Result{Status: events.Applied, Ref: ref("a"), UID: "u", Removed: true}, false, true},
		"another was deleted":        {events.Result{Status: events.Applied, Ref: ref("a"), UID: "v", Removed: true}, false, false},
		"it could not be deleted":    {events.Result{Status: events.Failed, Ref: ref("a"), UID: "u", Removed: true}, false, false},
		"it is about to be deleted":  {events.Result{Status: events.Applied, Ref: ref("a"), UID: "u"}, false, false},
	} {
		r := &review{did: []events.Result{c.did}}
		if taken, deleted := r.taken("a"), r.deleted("u"); taken != c.taken || deleted != c.deleted {
			t.Errorf("%s: the name is taken: %v, the Job is deleted: %v; want %v, %v", what, taken, deleted, c.taken, c.deleted)
		}
	}
}

// The last success is the end of a complete Job.
func TestTheLastSuccess(t *testing.T) {
	for how, want := range map[batchv1.JobConditionType]bool{batchv1.JobComplete: true, batchv1.JobFailed: false, batchv1.JobSuspended: false} {
		v := View{CronJob: aCronJob("")}
		v.CronJob.Spec.Schedule, v.CronJob.CreationTimestamp.Time = "0 0 1 1 *", now
		job := aJobOf(v.CronJob, "a")
		end := metav1.NewTime(now.Add(-time.Minute))
		job.Status.CompletionTime = &end
		job.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue}}
		v.Jobs = []*batchv1.Job{job}
		if got := v.review(now).well != nil; got != want {
			t.Errorf("one that is %s is the last success: %v, want %v", how, got, want)
		}
	}
}

// An Event reports many missed runs, except those that the deadline excludes anyway.
func TestManyMissedRuns(t *testing.T) {
	for what, c := range map[string]struct {
		since    time.Duration
		deadline int64 // 0: none
		want     bool
	}{
		"as many as may be":                  {100 * time.Minute, 0, false},
		"one more":                           {101 * time.Minute, 0, true},
		"many, but for a deadline":           {101 * time.Minute, 60, false},
		"many within a deadline":             {500 * time.Minute, 6060, true},
		"not so many, and a longer deadline": {50 * time.Minute, 60000, false},
	} {
		v := View{CronJob: aCronJob("")}
		at := now.Truncate(time.Minute)
		v.CronJob.Spec.Schedule, v.CronJob.CreationTimestamp.Time = "* * * * *", at.Add(-c.since)
		if c.deadline > 0 {
			v.CronJob.Spec.StartingDeadlineSeconds = &c.deadline
		}
		var told []string
		for _, command := range decide(v, at).Commands {
			if command.OnApplied != nil {
				told = append(told, command.OnApplied.Reason)
			}
		}
		if got := strings.Contains(fmt.Sprint(told), "TooManyMissedTimes"); got != c.want {
			t.Errorf("%s: users are told %v, want that there are too many: %v", what, told, c.want)
		}
	}
}
