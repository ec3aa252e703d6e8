package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	jobs "github.com/millrace/millrace/services/reconcilers/kube/job"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// counted tells whether a pod bears the finalizer that keeps it until it is in its
// Job's status.
func counted(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }

// stray tells whether a pod waits to be counted by a Job that never will: it has
// none, or that has finished (over) or is gone. Pods of other kinds of owners, and
// of Jobs that another controller manages, are theirs.
//
// Upstream: pkg/controller/job/job_controller.go, handleSingleOrphanPod.
func stray(s reconcile.Snapshot, p *corev1.Pod) (is, over bool) {
	if !counted(p) {
		return false, false
	}
	ref, controlled := owner.Of(p)
	if !controlled {
		return true, false
	}
	if ref.Kind != kinds.Jobs.Kind.Kind || ref.APIVersion != kinds.Jobs.APIVersion() {
		return false, false
	}
	job, there := jobOf(s, reconcile.Object{Kind: kinds.Pods.Kind, Object: p})
	if !there {
		return true, false
	}
	_, over = jobs.Finished(job)
	return over && !elsewhere(job), over
}

// elsewhere tells whether another controller manages a Job.
func elsewhere(job *batchv1.Job) bool {
	by := job.Spec.ManagedBy
	return by != nil && *by != batchv1.JobControllerName
}

// free takes the finalizer off a stray. The view may have seen the pod before its
// Job, and a Job that is there counts it: so of one that is not seen it has to be
// true that it is not there, and an orphan must not have been adopted.
func (v View) free() reconcile.Decision {
	if !counted(v.Stray) {
		return reconcile.Nothing("the pod does not wait to be counted")
	}
	ref, controlled := owner.Of(v.Stray)
	var with []reconcile.Option
	switch {
	case !controlled:
		with = append(with, reconcile.IfUnchanged(v.Stray))
	case !v.Over:
		with = append(with, reconcile.IfAbsent(ref))
	}
	d := reconcile.Do("the pod waits to be counted, and nobody counts it", release(v.Stray, with...))
	d.Figures = slices.Concat(tracked(v.Stray, "add", d.Commands[0].Ref()), tracked(v.Stray, "delete", d.Commands[0].Ref()))
	return d
}

// release takes the finalizer off a pod.
func release(p *corev1.Pod, with ...reconcile.Option) events.Command {
	patch := map[string]any{"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}}
	return reconcile.Patch(kinds.Pods.Kind, p, types.StrategicMergePatchType, reconcile.Body(patch), with...)
}
