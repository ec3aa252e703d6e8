package job

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// ends checks that a Job that may run ends if each started pod succeeds, and that none of
// its pods is left active or with the finalizer.
func ends(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Stray != nil || v.Job.DeletionTimestamp != nil || number(v.Job.Spec.Parallelism, 1) == 0 || *v.Job.Spec.Suspend {
		return nil
	}
	told := len(v.Job.Status.Conditions) > 0 // an end announced earlier is not compared with the counts
	for range 60 {
		now = now.Add(15 * time.Minute) // longer than any back-off
		v = carriedOut(v, now)
		d := c.Decide(v, now)
		if len(d.Commands) == 0 && d.WakeAt.IsZero() {
			return over(v, told)
		}
		v = applied(v, d, now)
	}
	return fmt.Errorf("after 60 turns it still wants something: %s", c.Decide(v, now).Because)
}

func over(v View, told bool) error {
	var ended []batchv1.JobConditionType
	for _, c := range v.Job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			ended = append(ended, c.Type)
		}
	}
	if len(ended) != 1 {
		return fmt.Errorf("nothing is left to be done, and it has ended %d times: %v", len(ended), ended)
	}
	if at := slices.IndexFunc(v.Pods, counted); at >= 0 {
		return fmt.Errorf("it has ended as %s, and still keeps %s", ended[0], v.Pods[at].Name)
	}
	if wanted := v.Job.Spec.Completions; ended[0] == batchv1.JobComplete && !told && wanted != nil && v.Job.Spec.SuccessPolicy == nil && v.Job.Status.Succeeded < *wanted {
		return fmt.Errorf("it is complete with %d of %d", v.Job.Status.Succeeded, *wanted)
	}
	return nil
}

// carriedOut returns the view after terminating pods have ended and running ones have succeeded.
func carriedOut(v View, now time.Time) View {
	pods := v.Pods
	v.Pods = nil
	for _, p := range pods {
		if p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
			continue
		}
		if p.Status.Phase == corev1.PodPending || p.Status.Phase == corev1.PodRunning {
			p = p.DeepCopy()
			code := int32(0)
			if p.Status.Phase = corev1.PodSucceeded; p.DeletionTimestamp != nil {
				p.Status.Phase, code = corev1.PodFailed, 143
			}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, FinishedAt: metav1.NewTime(now),
			}}}}
		}
		v.Pods = append(v.Pods, p)
	}
	return v
}
