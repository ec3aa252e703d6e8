package ttlafterfinished

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/job"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// delay is how long after their expiry Jobs are deleted.
//
// Upstream: pkg/controller/ttlafterfinished/metrics.
var delay = reconcile.Metric{
	Name:    "ttl_after_finished_controller_job_deletion_duration_seconds",
	Help:    "Time between the expiry of a finished Job and its deletion.",
	Buckets: []float64{0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2},
}

// decide deletes a Job in the foreground, so that it stays until its pods have
// gone. The delete is conditional on the Job's version, because a client may have
// given it more time.
//
// Upstream: pkg/controller/ttlafterfinished, which reads the Job once more before.
func decide(v View, now time.Time) reconcile.Decision {
	expiry, mortal := v.expiry()
	switch {
	case v.Job.DeletionTimestamp != nil:
		return reconcile.Nothing("the Job is being deleted")
	case !mortal:
		return reconcile.Nothing("the Job has not finished, or has no TTL")
	case now.Before(expiry):
		return reconcile.Wake(expiry, "the Job has finished, and its TTL has not expired")
	}
	d := reconcile.Do("the Job has finished, and its TTL has expired",
		reconcile.Delete(kinds.Jobs.Kind, v.Job, reconcile.IfUnchanged(v.Job), reconcile.Propagate(metav1.DeletePropagationForeground)))
	d.Figures = []reconcile.Figure{{Metric: delay.Name, Value: now.Sub(expiry).Seconds()}}
	return d
}

// expiry is when the Job expires; mortal is false if it never does. A Job without
// a finish time has no time to count from.
func (v View) expiry() (at time.Time, mortal bool) {
	end, finished := job.Finished(v.Job)
	if kept := v.Job.Spec.TTLSecondsAfterFinished; kept != nil && finished && !end.LastTransitionTime.IsZero() {
		return end.LastTransitionTime.Add(time.Duration(*kept) * time.Second), true
	}
	return time.Time{}, false
}
