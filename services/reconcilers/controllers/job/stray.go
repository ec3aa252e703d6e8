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

// counted reports whether a pod has the finalizer that keeps it until its Job's status has it.
func counted(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }

// stray reports whether a pod has the finalizer, but no Job will count it: no object
// controls it, or its Job has finished (over) or is deleted. Pods that belong to another
// kind of owner, or to Jobs that another controller manages, are not strays.
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

// elsewhere reports whether another controller manages a Job.
func elsewhere(job *batchv1.Job) bool {
	by := job.Spec.ManagedBy
	return by != nil && *by != batchv1.JobControllerName
}

// free removes the finalizer from a stray. The view may have the pod before its Job, and
// a Job that exists counts its pods. So if the Job is not visible, the patch requires
// that it is absent; if the pod is an orphan, the patch requires that it is unchanged, so
// that no Job has adopted it.
func (v View) free() reconcile.Decision {
	if !counted(v.Stray) {
		return reconcile.Nothing("the pod has no Job tracking finalizer to remove")
	}
	ref, controlled := owner.Of(v.Stray)
	var with []reconcile.Option
	switch {
	case !controlled:
		with = append(with, reconcile.IfUnchanged(v.Stray))
	case !v.Over:
		with = append(with, reconcile.IfAbsent(ref))
	}
	d := reconcile.Do("the pod has a Job tracking finalizer, and no Job to track it", release(v.Stray, with...))
	d.Figures = slices.Concat(tracked(v.Stray, "add", d.Commands[0].Ref()), tracked(v.Stray, "delete", d.Commands[0].Ref()))
	return d
}

// release returns the patch that removes the finalizer from a pod.
func release(p *corev1.Pod, with ...reconcile.Option) events.Command {
	patch := map[string]any{"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}}
	return reconcile.Patch(kinds.Pods.Kind, p, types.StrategicMergePatchType, reconcile.Body(patch), with...)
}
