// Package cronjob creates a Job at each scheduled time of a CronJob, and deletes old Jobs.
//
// # A run
//
// The scheduled time determines the name of the Job, so a run has one Job however often
// the controller decides on it:
//
//	the time has come      the Job is created, named after the time
//	the Job exists         it is added to status.active, and the time goes into
//	                       status.lastScheduleTime
//	the Job has ended      it is removed from status.active, and later deleted
//
// Of several missed times only the last is made up for. No goroutine waits in between:
// the wake is the next scheduled time.
//
// # Events sent once
//
// Some Events report a state in which the controller does nothing: the schedule cannot be
// parsed, or a run was skipped because another one is active. Each of them has a name in
// its turn, and is not sent again while the outcome of the last report has that name.
//
// # Changes of the schedule
//
// A report notes the schedule, and the time at which the controller first saw it. So a
// changed schedule begins with its next time, also after a restart: runs before the
// change are not made up for.
//
// # Which Jobs count
//
// A Job is a run if its annotation with the scheduled time agrees with its name: then
// this controller created it. Any other Job of the CronJob changes no status, whatever
// its name is. If the status says that the last run is in the future, by more than the
// maximum clock skew, the controller corrects it.
//
// # Differences
//
// Upstream guesses which time was missed last from the interval between the first two,
// and so loses runs of irregular schedules; this controller finds the last time. Without
// a time zone it reads a schedule in UTC, where upstream takes the zone of the machine
// that it runs on. It leaves Jobs of an earlier CronJob of the same name to the garbage collector.
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
	Events: reconcile.EventPromises{
		{Kind: kinds.CronJobs.Kind, On: reconcile.Itself},
	},
	Remembers: true,
	Metrics:   []reconcile.Metric{skew},
	Observe:   observe,
	Decide:    decide,
}

// View is the input of one turn.
type View struct {
	CronJob *batchv1.CronJob `json:"cronJob"`
	// Jobs are the Jobs that the CronJob controls.
	Jobs []*batchv1.Job `json:"jobs,omitempty"`
	// Did has the results of the last turn that created or deleted Jobs.
	Did []events.Result `json:"did,omitempty"`
	// Told has the names of the Events of the last report.
	Told []string `json:"told,omitempty"`
	// Noted is the schedule that the last report noted; nil if none did.
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
	if last, ok := reconcile.LastOf(s, k, events.LaneWrite, cj); ok {
		v.Did = last.Results
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, cj); ok {
		v.remember(last)
	}
	return v, true
}

// remember reads the Events and the note of the last report.
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
