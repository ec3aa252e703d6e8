package cronjob

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// The oldest of the runs that ended in one way are deleted, those without a start time
// last; of two with the same start time the first by name.
//
// Upstream: removeOldestJobs and byJobStartTime.
func TestTheOldestOfTheHistoryGo(t *testing.T) {
	const well, badly = batchv1.JobComplete, batchv1.JobFailed
	type run struct {
		name  string
		how   batchv1.JobConditionType // "" if it has not ended
		began int                      // minutes ago; 0: never
	}
	history := []run{
		{"w3", well, 30}, {"f1", badly, 90}, {"w1", well, 50}, {"w2", well, 40}, {"f2", badly, 80}, {"w0", well, 0}, {"run", "", 99}, {"f0", badly, 0},
	}
	limit := func(n int32) *int32 { return &n }
	for name, c := range map[string]struct {
		runs        []run
		well, badly *int32
		gone        string
	}{
		"none is too many":         {history, limit(4), limit(3), ""},
		"one of those that failed": {history, limit(4), limit(2), "f1"},
		"all that began":           {history, limit(1), limit(1), "w1 w2 w3 f1 f2"},
		"all":                      {history, limit(0), limit(0), "w1 w2 w3 w0 f1 f2 f0"},
		"without limits":           {history, nil, nil, ""},
		"one limit":                {history, limit(3), nil, "w1"},
		"begun at once":            {[]run{{"b", well, 5}, {"a", well, 5}, {"c", well, 5}}, limit(1), nil, "a b"},
		"one of two never began":   {[]run{{"a", well, 0}, {"b", well, 5}}, limit(1), nil, "b"},
		"the other of two":         {[]run{{"a", well, 5}, {"b", well, 0}}, limit(1), nil, "a"},
		"less than none":           {[]run{{"a", well, 5}}, limit(-1), nil, "a"},
		"never begun":              {[]run{{"b", badly, 0}, {"a", badly, 0}}, nil, limit(1), "a"},
	} {
		v := View{CronJob: aCronJob("u")}
		v.CronJob.Spec.Schedule, v.CronJob.Spec.Suspend = "0 0 1 1 *", new(bool)
		*v.CronJob.Spec.Suspend = true
		v.CronJob.Spec.SuccessfulJobsHistoryLimit, v.CronJob.Spec.FailedJobsHistoryLimit = c.well, c.badly
		for _, r := range c.runs {
			j := aJobOf(v.CronJob, r.name)
			if r.began > 0 {
				j.Status.StartTime = &metav1.Time{Time: now.Add(-time.Duration(r.began) * time.Minute)}
			}
			if r.how != "" {
				j.Status.Conditions = []batchv1.JobCondition{{Type: r.how, Status: corev1.ConditionTrue}}
			}
			v.Jobs = append(v.Jobs, j)
		}
		var gone []string
		for _, command := range decide(v, now).Commands {
			if command.Verb == events.VerbDelete && command.Kind == kinds.Jobs.Name {
				gone = append(gone, command.Name)
			}
		}
		if !slices.Equal(gone, strings.Fields(c.gone)) {
			t.Errorf("%s: %v go, want %s", name, gone, c.gone)
		}
	}
}

// A Job that cannot be deleted is retried after each run, and never together with one:
// repeated failures lengthen the back-off of a turn, and would delay the runs as well.
func TestAJobThatStaysHoldsNoRunBack(t *testing.T) {
	v := View{CronJob: aCronJob("u")}
	last := metav1.NewTime(now.Truncate(time.Minute))
	v.CronJob.Spec.Schedule, v.CronJob.Status.LastScheduleTime = "* * * * *", &last
	v.CronJob.Spec.SuccessfulJobsHistoryLimit = new(int32)
	old := aJobOf(v.CronJob, "old")
	old.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	v.Jobs = append(v.Jobs, old)
	does := func(what string, at time.Time, want ...events.Verb) {
		t.Helper()
		var verbs []events.Verb
		for _, c := range decide(v, at).In(events.LaneWrite).Commands {
			verbs = append(verbs, c.Verb)
		}
		if !slices.Equal(verbs, want) {
			t.Errorf("%s: the decision does %v, want %v", what, verbs, want)
		}
	}
	next := last.Add(time.Minute + time.Second)
	does("a Job is too many", now, events.VerbDelete)
	v.Did = []events.Result{{Status: events.Refused, Code: 403, Ref: events.Ref{Kind: kinds.Jobs.Name, Namespace: old.Namespace, Name: old.Name}}}
	does("it stays", now)
	if at := decide(v, now).WakeAt; !at.Equal(last.Add(time.Minute)) {
		t.Errorf("with a Job that stays the next turn is at %v, want a minute after the last run", at)
	}
	does("it stays, and a run is due", next, events.VerbCreate)
	v.CronJob.Spec.Suspend = new(bool)
	*v.CronJob.Spec.Suspend = true
	does("it stays, and no run is to come", now, events.VerbDelete)
	v.CronJob.Spec.Suspend, v.Did[0].Ref.Name = nil, nameOf(v.CronJob, last.Time)
	does("another create was refused", now, events.VerbDelete)
	v.Did[0].Ref.Name, v.Did[0].Status = old.Name, events.Skipped
	does("another command was", now, events.VerbDelete)
	v.Did[0].Status, v.Did[0].Reason = events.Refused, "Stale"
	does("the API server was not asked", now, events.VerbDelete)
}
