// Package job runs the pods of each Job to completion and counts how they ended.
//
// # A Job
//
// A Job keeps pods running until enough of them have succeeded or too many have failed.
// Each pod must be counted exactly once, although it may be deleted before the status
// counts it. So the controller creates each pod with a finalizer, and removes the
// finalizer only once the status has the pod:
//
//	the pod ends              its uid goes into status.uncountedTerminatedPods
//	the status has the uid    the finalizer is removed from the pod
//	the finalizer is gone     the uid is removed, and the counter rises
//
// Each step is decided on the result of the one before, as the watch returned it: on the
// status, and on the pod. So whatever is lost or redelivered in between, no step happens
// twice. In an indexed Job, status.completedIndexes replaces the uids for successes,
// because an index that is already listed is not counted again.
//
// # Its end
//
// A Job that is about to end first gets the condition FailureTarget or
// SuccessCriteriaMet; whichever is set first stands. Then its pods are deleted and
// counted. When no pod runs or terminates any more, the Job gets the condition Failed or
// Complete.
//
// # Pods that no Job counts
//
// A pod with the finalizer whose Job has finished or is deleted has a key of its own. The
// turn of that key removes the finalizer, which would otherwise keep the pod forever.
//
// # Back-off after failures
//
// A failed pod is replaced after ten seconds. Each further failure doubles the delay, up
// to ten minutes. The controller reads the number of failures since the last success, and
// their times, from the pods that still exist. Failed pods that are deleted count
// together as one more failure, at the time at which their finalizers were removed.
//
// Upstream: pkg/controller/job, which keeps those in memory and forgets them when it restarts.
package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Burst is the maximum number of pods that one turn creates, deletes or removes the
// finalizer from, and the maximum number of uids that wait in a status to be counted.
const Burst = 500

// Controller runs Jobs under the default feature gates. A key is a Job or, if the key
// names a kind, a pod that no Job will count.
var Controller = New(nil)

// New returns the controller with these feature gates changed from their defaults.
func New(gates gate.Set) reconcile.Controller[View] {
	gates = gates.Of(gate.MutableSchedulingDirectivesForSuspendedJobs)
	return reconcile.Controller[View]{
		Name:    "job-controller",
		Aliases: []string{"job"},
		Queue:   "job",
		Owns:    &kinds.Jobs.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Jobs.Kind, Keys: keysOfJob},
			{Kind: kinds.Pods.Kind, Keys: keysOfPod},
		},
		Writes: reconcile.Writes{
			template.Creates([]string{
				".metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']", ".metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']",
				".metadata.annotations['" + batchv1.JobIndexFailureCountAnnotation + "']", ".metadata.annotations['" + batchv1.JobIndexIgnoredFailureCountAnnotation + "']",
				".spec.hostname", ".spec.containers[*].env", ".spec.initContainers[*].env",
			}, []string{batchv1.JobTrackingFinalizer}),
			{Verb: events.VerbPatch, Kind: kinds.Pods.Name, On: reconcile.Beside, Child: true, Fields: []string{".metadata.ownerReferences", ".metadata.finalizers"}},
			{Verb: events.VerbDelete, Kind: kinds.Pods.Name, On: reconcile.Beside},
			{Verb: events.VerbUpdate, Kind: kinds.Jobs.Name, Subresource: "status", On: reconcile.Itself},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.Jobs.Kind, On: reconcile.Itself},
		},
		Metrics:   metrics,
		Remembers: true,
		Settings:  gates.Settings(),
		Observe: func(s reconcile.Snapshot, k events.Key) (View, bool) {
			v, ok := observe(s, k)
			v.Gates = gates
			return v, ok
		},
		Decide: decide,
	}
}

// View is the input of one turn: a Job with its pods, or a pod that no Job will count.
type View struct {
	Job *batchv1.Job `json:"job,omitempty"`
	// Pods are the pods that the Job controls, and the orphans that its selector matches.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Attempt is the number of the last acting turn if one of its commands failed;
	// otherwise 0. It makes the names of a retry differ from those of the failed attempt.
	Attempt uint64 `json:"attempt,omitempty"`
	// LetGo is the time of the last acting turn if a pod that had exactly one command in
	// it, the removal of its finalizer, has disappeared since; otherwise nil.
	LetGo *time.Time `json:"letGo,omitempty"`
	// Surplus are the terminating pods that this controller deleted because there were
	// too many.
	Surplus []types.UID `json:"surplus,omitempty"`
	// Told is true if an Event has already reported what is wrong with this version of the Job.
	Told bool `json:"told,omitempty"`
	// Stray is the pod that no Job will count. Over is true if its Job exists and has
	// finished.
	Stray *corev1.Pod `json:"stray,omitempty"`
	Over  bool        `json:"over,omitempty"`
	// Gates are the feature gates that are not at their defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	if k.Kind == kinds.Pods.Name {
		p, ok := reconcile.Get(s, kinds.Pods, k.Namespace, k.Name)
		if !ok {
			return View{}, false
		}
		is, over := stray(s, p)
		return View{Stray: p, Over: over}, is
	}
	job, ok := reconcile.Get(s, kinds.Jobs, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Job: job}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, job); ok && !known(job.Spec.CompletionMode) {
		v.Told = reconcile.IsCurrent(last, job)
	}
	for _, p := range reconcile.ControlledBy(s, kinds.Pods, job.UID) {
		if p.Namespace == job.Namespace {
			v.Pods = append(v.Pods, p)
		}
	}
	if selector, ok := label.Selector(job.Spec.Selector); ok {
		for _, p := range reconcile.Orphans(s, kinds.Pods, job.Namespace) {
			if p.DeletionTimestamp == nil && selector.Matches(labels.Set(p.Labels)) {
				v.Pods = append(v.Pods, p)
			}
		}
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneWrite, job); ok {
		if _, failed := last.Failure(); failed {
			v.Attempt = last.Turn
		}
		missed, surplus := became(s, last.Results)
		handed := handedOn(last.Results)
		if v.Surplus = v.with(surplus, handed.Surplus); missed && !handed.Claims {
			v.LetGo = &last.At
		}
	}
	return v, true
}

// became compares the results of the last acting turn with the snapshot. missed is true
// if a pod that had exactly one command, the removal of its finalizer, has disappeared.
// surplus are the pods that had a second command, their delete, and still exist.
func became(s reconcile.Snapshot, results []events.Result) (missed bool, surplus []types.UID) {
	done := map[types.UID]int{}
	for _, r := range results {
		done[r.UID]++
	}
	for _, r := range results {
		if !r.OK() || r.Ref.Kind != kinds.Pods.Name {
			continue
		}
		p, there := reconcile.Get(s, kinds.Pods, r.Ref.Namespace, r.Ref.Name)
		switch there = there && p.UID == r.UID; {
		case there && done[r.UID] > 1 && !slices.Contains(surplus, r.UID):
			surplus = append(surplus, r.UID)
		case !there && done[r.UID] == 1 && !r.Removed:
			missed = true
		}
	}
	return missed, surplus
}
