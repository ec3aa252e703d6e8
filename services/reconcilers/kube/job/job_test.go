package job_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/kube/job"
)

func TestFinished(t *testing.T) {
	says := func(of batchv1.JobConditionType, status corev1.ConditionStatus) batchv1.JobCondition {
		return batchv1.JobCondition{Type: of, Status: status}
	}
	complete, failed := says(batchv1.JobComplete, corev1.ConditionTrue), says(batchv1.JobFailed, corev1.ConditionTrue)
	for what, c := range map[string]struct {
		conditions []batchv1.JobCondition
		want       batchv1.JobConditionType
	}{
		"new":             {nil, ""},
		"complete":        {[]batchv1.JobCondition{says(batchv1.JobSuspended, corev1.ConditionFalse), complete}, batchv1.JobComplete},
		"failed":          {[]batchv1.JobCondition{failed}, batchv1.JobFailed},
		"not complete":    {[]batchv1.JobCondition{says(batchv1.JobComplete, corev1.ConditionFalse)}, ""},
		"about to finish": {[]batchv1.JobCondition{says(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue)}, ""},
		"about to fail":   {[]batchv1.JobCondition{says(batchv1.JobFailureTarget, corev1.ConditionTrue)}, ""},
	} {
		end, ok := job.Finished(&batchv1.Job{Status: batchv1.JobStatus{Conditions: c.conditions}})
		if ok != (c.want != "") || end.Type != c.want {
			t.Errorf("%s: finished %v, %q; want %q", what, ok, end.Type, c.want)
		}
	}
}
