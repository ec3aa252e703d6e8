package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	jobs "github.com/millrace/millrace/services/reconcilers/kube/job"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// keysOfJob maps a Job to itself and, if it has finished or is deleted, to its pods that
// still have the finalizer.
func keysOfJob(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	at := now
	if at.None() {
		at = was
	}
	keys := []events.Key{{Namespace: at.GetNamespace(), Name: at.GetName()}}
	for _, job := range []reconcile.Object{was, now} {
		if job.None() || job == now && !finished(now) {
			continue
		}
		if job == was && !now.None() && now.GetUID() == was.GetUID() {
			continue // the same Job still exists: now decides
		}
		for _, p := range reconcile.ControlledBy(s, kinds.Pods, job.GetUID()) {
			if counted(p) {
				keys = append(keys, keyOfStray(p))
			}
		}
	}
	return keys
}

func finished(obj reconcile.Object) bool {
	job, ok := obj.Object.(*batchv1.Job)
	if !ok {
		return false
	}
	_, ok = jobs.Finished(job)
	return ok
}

func keyOfStray(p *corev1.Pod) events.Key {
	return events.Key{Kind: kinds.Pods.Name, Namespace: p.GetNamespace(), Name: p.GetName()}
}

// keysOfPod maps a pod to the Job that controls it, to the Job that did before, for an
// orphan to every Job that may adopt it, and to the pod's own key if it is a stray.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, p := range []reconcile.Object{now, was} {
		if p.None() {
			continue
		}
		if job, ok := jobOf(s, p); ok && !slices.Contains(keys, keyOf(job)) {
			keys = append(keys, keyOf(job))
		}
	}
	if now.None() {
		return keys
	}
	if p, ok := now.Object.(*corev1.Pod); ok {
		if is, _ := stray(s, p); is {
			keys = append(keys, keyOfStray(p))
		}
	}
	if _, controlled := owner.Of(now); controlled || now.GetDeletionTimestamp() != nil || len(now.GetLabels()) == 0 {
		return keys
	}
	for _, job := range reconcile.List(s, kinds.Jobs, now.GetNamespace()) {
		if label.Selects(job.Spec.Selector, now) && !slices.Contains(keys, keyOf(job)) {
			keys = append(keys, keyOf(job))
		}
	}
	return keys
}

func keyOf(job *batchv1.Job) events.Key {
	return events.Key{Namespace: job.Namespace, Name: job.Name}
}

// jobOf returns the Job that controls a pod, if it exists.
func jobOf(s reconcile.Snapshot, p reconcile.Object) (*batchv1.Job, bool) {
	ref, ok := owner.Of(p)
	if !ok {
		return nil, false
	}
	job, ok := reconcile.Get(s, kinds.Jobs, p.GetNamespace(), ref.Name)
	if !ok || !owner.Refers(ref, kinds.Jobs.Kind, job) {
		return nil, false
	}
	return job, true
}
