// Package cronjob starts a Job whenever the schedule of a CronJob says so, and
// clears away the old ones.
//
// # A run
//
// The moment of a run gives its Job the name, so that a run has one Job however
// often it is decided on:
//
//	the moment has come     the Job is created under the name of the moment
//	the Job is there        it goes into status.active, and the moment into
//	                        status.lastScheduleTime
//	the Job has ended       it goes out of status.active, and in time it is deleted
//
// Of several moments that were missed only the last one is made up for. In between
// no goroutine waits: the wake is the next moment of the schedule.
//
// # What is said once
//
// Some Events tell of something that is so, and changes nothing: that the schedule
// cannot be read, or that a run was left out because another one is at work. Each
// bears a name in the turn that tells it, and is not told again while the last
// report has that name in its outcome.
//
// # What is noted
//
// A report notes the schedule, and when it was first seen to be that one. So a schedule
// that is changed begins with its next moment, also after a restart: what it would have
// run before the change is not made up for.
//
// # Whose Jobs count
//
// A Job is a run when its annotation with the scheduled time and its name agree: the
// controller created it. Any other Job of the CronJob changes no status, whatever its
// name is. A status that says that the last run is yet to come, beyond what clocks can be
// apart, is corrected.
//
// # Where it differs
//
// Upstream guesses which moment was missed last from the distance of the first two,
// and so loses runs of schedules that are not regular; here the last moment is
// found. Without a time zone a schedule is read in UTC, where upstream takes the
// zone of the machine that it runs on. Jobs of an earlier CronJob of the same name
// are left to the garbage collector.
//
// Upstream: pkg/controller/cronjob.
package cronjob

import (
	"encoding/json"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller runs CronJobs.
var Controller = reconcile.Controller[View]{
	Name:    "cronjob-controller",
	Aliases: []string{"cronjob"},
	Queue:   "cronjob",
	Owns:    &kinds.CronJobs.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.CronJobs.Kind),
		{Kind: kinds.Jobs.Kind, Keys: keysOfJob},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbCreate, Kind: kinds.Jobs.Name, On: reconcile.Beside, Name: reconcile.After, Child: true, Fields: template.Made,
			Copies: []reconcile.Copy{{To: ".spec", From: ".spec.jobTemplate.spec"}, {To: ".metadata.labels", From: ".spec.jobTemplate.metadata.labels"}}},
		{Verb: events.VerbDelete, Kind: kinds.Jobs.Name, On: reconcile.Beside, Propagation: []metav1.DeletionPropagation{metav1.DeletePropagationBackground}},
		{Verb: events.VerbUpdate, Kind: kinds.CronJobs.Name, Subresource: "status", On: reconcile.Itself},
	},
	Tells: reconcile.Tells{
		{Kind: kinds.CronJobs.Kind, On: reconcile.Itself},
	},
	Remembers: true,
	Metrics:   []reconcile.Metric{skew},
	Observe:   observe,
	Decide:    decide,
}

// View is what one turn can see.
type View struct {
	CronJob *batchv1.CronJob `json:"cronJob"`
	// Jobs are those that it controls.
	Jobs []*batchv1.Job `json:"jobs,omitempty"`
	// Did is what became of the Jobs that the last turn had created or deleted.
	Did []events.Result `json:"did,omitempty"`
	// Told are the names of what the last report told.
	Told []string `json:"told,omitempty"`
	// Noted is what it noted of the schedule; nil when nothing is known of it.
	Noted *note `json:"noted,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	cj, ok := reconcile.Get(s, kinds.CronJobs, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{CronJob: cj}
	for _, job := range reconcile.ControlledBy(s, kinds.Jobs, cj.UID) {
		if job.Namespace == cj.Namespace {
			v.Jobs = append(v.Jobs, job)
		}
	}
	if last, ok := reconcile.LastOf(s, k, events.Act, cj); ok {
		v.Did = last.Results
	}
	if last, ok := reconcile.LastOf(s, k, events.Tell, cj); ok {
		v.remember(last)
	}
	return v, true
}

// remember takes in what the last report told and noted.
func (v *View) remember(told events.Outcome) {
	for _, r := range told.Results {
		if r.OK() && r.Ref.Kind == kinds.Events.Name {
			v.Told = append(v.Told, r.Ref.Name)
		}
		n := note{}
		if r.Answer != nil && json.Unmarshal(r.Answer.Note, &n) == nil && n.Schedule != "" {
			n.Since = told.Noted(n.Since)
			v.Noted = &n
		}
	}
}

// keysOfJob maps a Job to the CronJob that controls it, and the one that did before.
func keysOfJob(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, job := range []reconcile.Object{now, was} {
		if job.None() {
			continue
		}
		ref, ok := owner.Of(job)
		if !ok {
			continue
		}
		cj, ok := reconcile.Get(s, kinds.CronJobs, job.GetNamespace(), ref.Name)
		key := events.Key{Namespace: job.GetNamespace(), Name: ref.Name}
		if ok && owner.Refers(ref, kinds.CronJobs.Kind, cj) && (len(keys) == 0 || keys[0] != key) {
			keys = append(keys, key)
		}
	}
	return keys
}
