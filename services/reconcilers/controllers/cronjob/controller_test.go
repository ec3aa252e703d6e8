package cronjob

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var nightly = events.Key{Namespace: "batch", Name: "nightly"}

func aCronJob(uid string) *batchv1.CronJob {
	cj := &batchv1.CronJob{}
	cj.Namespace, cj.Name, cj.UID = nightly.Namespace, nightly.Name, "4f1c"
	if uid != "" {
		cj.UID = "another"
	}
	return cj
}

func aJobOf(cj *batchv1.CronJob, name string) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name}}
	if cj != nil {
		job.OwnerReferences = []metav1.OwnerReference{owner.Reference(kinds.CronJobs.Kind, cj)}
	}
	return job
}

func TestWhoseTurnAJobMakesIt(t *testing.T) {
	cj := aCronJob("")
	world := reconciletest.NewWorld(kinds.Jobs.Kind).Put(kinds.CronJobs.Kind, cj)
	mine, other, orphan := aJobOf(cj, "a"), aJobOf(aCronJob("another"), "a"), aJobOf(nil, "a")
	for _, c := range []struct {
		what     string
		was, now metav1.Object
		want     []events.Key
	}{
		{"it is new", nil, mine, []events.Key{nightly}},
		{"it changes", mine, mine, []events.Key{nightly}},
		{"it is gone", mine, nil, []events.Key{nightly}},
		{"it is released", mine, orphan, []events.Key{nightly}},
		{"it has no owner", nil, orphan, nil},
		{"it is an earlier CronJob's", nil, other, nil},
	} {
		if got := world.Keys(Controller, kinds.Jobs.Kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: keys %v, want %v", c.what, got, c.want)
		}
	}
}

func TestObserve(t *testing.T) {
	cj := aCronJob("")
	mine := aJobOf(cj, "a")
	far := aJobOf(cj, "far")
	far.Namespace = "elsewhere"
	world := reconciletest.NewWorld().Put(kinds.CronJobs.Kind, cj).Put(kinds.Jobs.Kind, mine, far, aJobOf(nil, "b"), aJobOf(aCronJob("another"), "c"))
	create := events.Result{Status: events.Applied, Ref: events.Ref{Kind: kinds.Jobs.Name, Namespace: "batch", Name: "a"}}
	world.Remember(events.Outcome{Key: nightly, UID: cj.UID, Lane: events.LaneWrite, Results: []events.Result{create}})
	world.Remember(events.Outcome{Key: nightly, UID: cj.UID, Lane: events.LaneStatus, Results: []events.Result{
		{Status: events.Applied, Ref: events.Ref{Kind: kinds.CronJobs.Name, Name: "nightly"}},
		{Status: events.Applied, Ref: events.Ref{Kind: kinds.Events.Name, Name: "Told it"}},
		{Status: events.Failed, Ref: events.Ref{Kind: kinds.Events.Name, Name: "Told not"}},
		{Status: events.Unchanged, Answer: &events.Answer{Note: json.RawMessage(`{"schedule": "0 0 * * *", "since": "2030-01-01T10:00:00Z"}`)}},
	}})
	v, ok := observe(world, nightly)
	if !ok || v.CronJob != cj || !slices.Equal(v.Jobs, []*batchv1.Job{mine}) {
		t.Errorf("the view has the Jobs %v of %v, found: %v", v.Jobs, v.CronJob, ok)
	}
	if !slices.Equal(v.Did, []events.Result{create}) || !slices.Equal(v.Told, []string{"Told it"}) {
		t.Errorf("the view remembers that it did %v and told %q", v.Did, v.Told)
	}
	if want := (note{Schedule: "0 0 * * *", Since: time.Date(2030, 1, 1, 10, 0, 0, 0, time.UTC)}); v.Noted == nil || *v.Noted != want {
		t.Errorf("the note about the schedule is %v, want %v", v.Noted, want)
	}
	world.Put(kinds.CronJobs.Kind, aCronJob("another"))
	if v, _ := observe(world, nightly); v.Did != nil || v.Told != nil || v.Noted != nil {
		t.Errorf("of another CronJob of that name the view remembers that it did %v, told %q and noted %v", v.Did, v.Told, v.Noted)
	}
	if _, ok := observe(world, events.Key{Namespace: "batch", Name: "absent"}); ok {
		t.Error("observe finds a CronJob that is not there")
	}
}

// A clock that is an hour ahead dates a change of the schedule. The change counts from
// the time at which it was received, so no runs of an hour are skipped.
func TestAScheduleThatWasChangedAhead(t *testing.T) {
	heard := time.Date(2030, 1, 1, 10, 0, 0, 0, time.UTC)
	ahead := heard.Add(time.Hour)
	for _, c := range []struct{ since, want time.Time }{
		{ahead.Add(-delay), heard}, {heard.Add(-time.Minute), heard.Add(-time.Minute)}, {time.Time{}, time.Time{}},
	} {
		told := events.Outcome{Decided: ahead, At: ahead, Results: []events.Result{{Answer: &events.Answer{Note: reconcile.Body(note{Schedule: "* * * * *", Since: c.since})}}}}
		var v View
		if v.remember(told.KnownBy(heard)); v.Noted == nil || !v.Noted.Since.Equal(c.want) {
			t.Errorf("noted of %v, it was changed at %v", c.since, v.Noted)
		}
	}
}
