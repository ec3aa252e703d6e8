// Package job runs pods to their end, as many as each Job asks for, and counts
// how they ended.
//
// # A Job
//
// A Job keeps some pods at work until enough of them have succeeded, or too much
// has gone wrong. What it counts must be counted once, although pods may be gone
// by the time that they are counted. So each of its pods is created with a finalizer,
// which keeps it until it is in the status:
//
//	the pod ends            its uid goes into status.uncountedTerminatedPods
//	its uid is there        the finalizer is taken off it
//	the finalizer is off    its uid goes, and the counter rises
//
// Each step rests on the one before as it was seen: on the status as it came
// back, and on the pod as it came back. Whatever is lost or doubled in between,
// no step can be made twice. With indexes, status.completedIndexes does for
// successes what the uids do, since an index that is there is not counted again.
//
// # Its end
//
// A Job that is to end says so first (FailureTarget or SuccessCriteriaMet), then
// its pods are deleted, each is counted, and when none is left that runs or leaves
// it says how it ended (Failed or Complete). What was decided first stands.
//
// # Pods that no Job counts
//
// A pod with the finalizer whose Job is finished or gone has a key of its own: the
// finalizer is taken off it, or it would stay for ever.
//
// # Failures, and patience
//
// A pod that failed is replaced after ten seconds, after another failure twice as
// that, ten minutes at most. How many failed since the last success, and when, is
// read from the pods that are there; what failed and is gone counts as one more
// failure, at the moment at which it was let go.
//
// Upstream: pkg/controller/job, which keeps those in memory and forgets them when
// it restarts.
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

// Burst is how many pods one turn has created, deleted or let go at most, and how
// many uids wait in a status to be counted.
const Burst = 500

// Controller runs Jobs, under the default feature gates. A key is a Job or, where it names
// a kind, a pod that belongs to no Job that counts it.
var Controller = New(nil)

// New makes the controller, under feature gates that are not at their defaults.
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
		Tells: reconcile.Tells{
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

// View is what one turn can see: a Job, or a pod that no Job counts.
type View struct {
	Job *batchv1.Job `json:"job,omitempty"`
	// Pods are those that the Job controls, and the orphans that it selects.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Attempt tells the last turn that acted from all others, if something failed
	// in it; else it is 0.
	Attempt uint64 `json:"attempt,omitempty"`
	// LetGo is when pods that are not there any more had something taken off them,
	// if that was the last thing that was done for the Job.
	LetGo *time.Time `json:"letGo,omitempty"`
	// Surplus are the pods, still on their way out, that were deleted because they were
	// too many.
	Surplus []types.UID `json:"surplus,omitempty"`
	// Told tells whether users have been told what is wrong with this version of the Job.
	Told bool `json:"told,omitempty"`
	// Stray is the pod that no Job counts; Over tells that its Job is there, and has
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
	if last, ok := reconcile.LastOf(s, k, events.Tell, job); ok && !known(job.Spec.CompletionMode) {
		v.Told = last.ResourceVersion == job.ResourceVersion
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
	if last, ok := reconcile.LastOf(s, k, events.Act, job); ok {
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

// became is what became of the pods that something was done to: missed tells whether
// one that was let go, and nothing else, is not there; surplus are those that are, and
// that were deleted besides.
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
