// Package job answers the questions that several controllers ask about Jobs.
package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Finished returns the condition that says that a Job has ended, well or badly;
// ok is false for a Job that has not.
func Finished(j *batchv1.Job) (end batchv1.JobCondition, ok bool) {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c, true
		}
	}
	return batchv1.JobCondition{}, false
}
