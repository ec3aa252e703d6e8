package workloads_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/settle"
	"github.com/millrace/millrace/test/oracle/workloads"
)

func TestJobsEndAsUpstreamsDo(t *testing.T) { endAlike(t, workloads.Job, jobWorld) }

// endAlike searches for a world that ends differently.
func endAlike(t *testing.T, c settle.Course, worlds func(*rapid.T) []runtime.Object) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		world := worlds(r)
		diff, err := c.Compare(t, world)
		if err != nil {
			r.Fatalf("%v\n%s", err, oracletest.Page(r, world))
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) end differently:\n%s\n%s", diff, oracletest.Page(r, world))
		}
	})
}

// longOrShortAgo is a time with which nothing becomes due while upstream runs undisturbed: a failure just now
// waits for longer, a failure an hour ago waits no more.
func longOrShortAgo(t *rapid.T, what string) metav1.Time {
	return oracletest.Before(objects.Now, rapid.SampledFrom([]int{1, 2, 3600}).Draw(t, what))
}

func jobWorld(t *rapid.T) []runtime.Object {
	job := anyJob(t)
	world := []runtime.Object{job}
	ends := len(job.Status.Conditions) > 0 && job.Status.Conditions[0].Type != batchv1.JobSuspended
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		world = append(world, anyJobPod(t, job, i, ends))
	}
	return world
}

func anyJob(t *rapid.T) *batchv1.Job {
	small := func(name string) *int32 { return oracletest.Ptr(int32(rapid.IntRange(0, 4).Draw(t, name))) }
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "sum", UID: "uid-sum", ResourceVersion: "1", Generation: 1, CreationTimestamp: oracletest.Before(objects.Now, 7200),
		},
		Spec: batchv1.JobSpec{
			Parallelism: small("parallelism"), BackoffLimit: small("backoffLimit"), Suspend: oracletest.Ptr(false),
			CompletionMode: oracletest.Ptr(batchv1.NonIndexedCompletion), PodReplacementPolicy: oracletest.Ptr(batchv1.TerminatingOrFailed),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": "sum"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"job": "sum"}},
				Spec: corev1.PodSpec{
					RestartPolicy: rapid.SampledFrom([]corev1.RestartPolicy{"Never", "Never", "OnFailure"}).Draw(t, "restartPolicy"),
					Containers:    []corev1.Container{{Name: "c", Image: "sum:1"}},
				},
			},
		},
	}
	anyMode(t, job, small)
	if rapid.IntRange(0, 3).Draw(t, "failurePolicy") == 3 {
		job.Spec.PodFailurePolicy = anyFailurePolicy(t)
		job.Spec.PodReplacementPolicy = oracletest.Ptr(batchv1.Failed)
	} else if rapid.IntRange(0, 2).Draw(t, "replace ended only") == 2 {
		job.Spec.PodReplacementPolicy = oracletest.Ptr(batchv1.Failed)
	}
	anyFate(t, job)
	return job
}

func anyMode(t *rapid.T, job *batchv1.Job, small func(string) *int32) {
	switch rapid.IntRange(0, 3).Draw(t, "mode") {
	case 0:
	case 1:
		job.Spec.Completions = small("completions")
	default:
		job.Spec.Completions, job.Spec.CompletionMode = small("completions"), oracletest.Ptr(batchv1.IndexedCompletion)
		job.Status.CompletedIndexes = rapid.SampledFrom([]string{"", "", "0", "1,3"}).Draw(t, "completedIndexes")
		if rapid.Bool().Draw(t, "perIndex") {
			job.Spec.BackoffLimitPerIndex = oracletest.Ptr(int32(rapid.IntRange(0, 2).Draw(t, "perIndexLimit")))
			job.Status.FailedIndexes = oracletest.Ptr(rapid.SampledFrom([]string{"", "", "2"}).Draw(t, "failedIndexes"))
			if rapid.Bool().Draw(t, "maxFailed") {
				job.Spec.MaxFailedIndexes = small("maxFailedIndexes")
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "successPolicy") == 2 {
			rule := batchv1.SuccessPolicyRule{SucceededIndexes: oracletest.Ptr(rapid.SampledFrom([]string{"0", "0,2-9", "1-2"}).Draw(t, "indexes"))}
			if rapid.Bool().Draw(t, "count too") {
				rule.SucceededCount = oracletest.Ptr(int32(1))
			}
			job.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{rule, {SucceededCount: oracletest.Ptr(int32(3))}}}
		}
	}
}

// anyFate is the state of the Job.
func anyFate(t *rapid.T, job *batchv1.Job) {
	if rapid.Bool().Draw(t, "begun") {
		job.Status.StartTime = oracletest.Ptr(oracletest.Before(objects.Now, 7000))
		job.Status.Failed = int32(rapid.IntRange(0, 2).Draw(t, "failed"))
		if job.Status.CompletedIndexes == "" {
			job.Status.Succeeded = int32(rapid.IntRange(0, 1).Draw(t, "succeeded"))
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "suspend") == 4 {
		job.Spec.Suspend = oracletest.Ptr(true)
	}
	if rapid.IntRange(0, 3).Draw(t, "deadline") == 3 {
		job.Spec.ActiveDeadlineSeconds = oracletest.Ptr(rapid.SampledFrom([]int64{60, 36000}).Draw(t, "seconds"))
	}
	if rapid.IntRange(0, 9).Draw(t, "deleted") == 9 {
		job.DeletionTimestamp, job.Finalizers = oracletest.Ptr(oracletest.Before(objects.Now, 1)), []string{metav1.FinalizerDeleteDependents}
	}
	if rapid.IntRange(0, 19).Draw(t, "managed elsewhere") == 19 {
		job.Spec.ManagedBy = oracletest.Ptr("example.com/queue")
	}
	says := func(what batchv1.JobConditionType, status corev1.ConditionStatus) {
		at := oracletest.Before(objects.Now, 1800)
		job.Status.Conditions = []batchv1.JobCondition{{
			Type: what, Status: status, Reason: "Told", Message: "before", LastProbeTime: at, LastTransitionTime: at,
		}}
	}
	switch rapid.IntRange(0, 15).Draw(t, "condition") {
	case 0:
		says(batchv1.JobFailureTarget, corev1.ConditionTrue)
	case 1:
		says(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue)
	case 2:
		says(batchv1.JobSuspended, corev1.ConditionTrue)
		job.Status.StartTime = nil
	case 3:
		says(batchv1.JobSuspended, corev1.ConditionFalse)
	}
}

func anyFailurePolicy(t *rapid.T) *batchv1.PodFailurePolicy {
	actions := rapid.SampledFrom([]batchv1.PodFailurePolicyAction{"Ignore", "Count", "FailJob", "FailIndex"})
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: actions.Draw(t, "on 1"), OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: "In", Values: []int32{1}}},
		{Action: actions.Draw(t, "on disruption"), OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
		}},
	}}
}

// anyJobPod is a pod of a Job. Upstream removes the finalizer of a terminating pod in the same sync in which
// the Job reports that it will end, so there is none. No two are created at once, because the order of their
// deletes would be chance.
func anyJobPod(t *rapid.T, job *batchv1.Job, i int, ends bool) *corev1.Pod {
	name := fmt.Sprintf("sum-%d", i)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", CreationTimestamp: oracletest.Before(objects.Now, 4000+i),
			Labels: map[string]string{"job": "sum"}, Finalizers: []string{batchv1.JobTrackingFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: corev1.PodSpec{NodeName: rapid.SampledFrom([]string{"", "n1", "n1"}).Draw(t, "node")},
		Status: corev1.PodStatus{
			Phase: rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Running", "Failed", "Failed", "Succeeded"}).Draw(t, "phase"),
		},
	}
	exemption.Uses("twins-among-job-pods")
	ended := longOrShortAgo(t, "ended")
	switch rapid.IntRange(0, 8).Draw(t, "kept") {
	case 0: // counted
		p.Finalizers, ended = nil, oracletest.Before(objects.Now, 3600)
	case 1, 2: // listed
		ended = oracletest.Before(objects.Now, 3600)
		list(job, p)
	case 3: // with a finalizer it is chance whether upstream removes it before or after the adoption
		exemption.Uses("adopted-with-finalizer")
		p.OwnerReferences, p.Finalizers = nil, nil
	case 4: // one that is deleted releases nothing, and upstream forgets such a pod of a finished Job
		if job.DeletionTimestamp == nil {
			p.Labels["job"] = "other"
		} else {
			exemption.Uses("given-up-while-it-ends")
		}
	}
	switch leaves := rapid.IntRange(0, 5).Draw(t, "leaving") == 5 && len(p.OwnerReferences) > 0; {
	case leaves && ends:
		exemption.Uses("pods-that-leave-ended-jobs")
	case leaves:
		p.DeletionTimestamp = &ended
	}
	if *job.Spec.CompletionMode == batchv1.IndexedCompletion && rapid.IntRange(0, 8).Draw(t, "no index") < 8 {
		p.Annotations = map[string]string{
			batchv1.JobCompletionIndexAnnotation:   strconv.Itoa(rapid.IntRange(0, 4).Draw(t, "index")),
			batchv1.JobIndexFailureCountAnnotation: strconv.Itoa(rapid.IntRange(0, 2).Draw(t, "count")),
		}
	}
	anyContainers(t, p, ended)
	if p.DeletionTimestamp != nil && !justFailed(job, p, ended) {
		exemption.Uses("failed-and-gone")
		p.Spec.NodeName = "n1"
	}
	if p.Status.Phase == corev1.PodFailed && len(p.Finalizers) == 0 && len(p.OwnerReferences) > 0 && !ignored(job, p) {
		job.Status.Failed++
	}
	return p
}

// justFailed reports whether a pod has just failed and must be counted. Without a node it is deleted as soon
// as its finalizer is removed, and ours takes that for the time of its failure.
func justFailed(job *batchv1.Job, p *corev1.Pod, at metav1.Time) bool {
	if index, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation]); *job.Spec.CompletionMode == batchv1.IndexedCompletion &&
		(err != nil || index >= int(*job.Spec.Completions)) {
		return false
	}
	return p.Status.Phase == corev1.PodFailed && len(p.Finalizers) > 0 && at.After(objects.Now.Add(-time.Minute))
}

// ignored reports whether the rules of [anyFailurePolicy] ignore a failure.
func ignored(job *batchv1.Job, p *corev1.Pod) bool {
	if job.Spec.PodFailurePolicy == nil {
		return false
	}
	rules := job.Spec.PodFailurePolicy.Rules
	if p.Status.ContainerStatuses[0].State.Terminated.ExitCode == 1 {
		return rules[0].Action == batchv1.PodFailurePolicyActionIgnore
	}
	return len(p.Status.Conditions) > 0 && rules[1].Action == batchv1.PodFailurePolicyActionIgnore
}

// list adds a pod to the list of uncounted pods.
func list(job *batchv1.Job, p *corev1.Pod) {
	waiting := job.Status.UncountedTerminatedPods
	if waiting == nil {
		waiting = &batchv1.UncountedTerminatedPods{}
		job.Status.UncountedTerminatedPods = waiting
	}
	switch {
	case p.Status.Phase == corev1.PodFailed:
		waiting.Failed = append(waiting.Failed, p.UID)
	case p.Status.Phase == corev1.PodSucceeded && *job.Spec.CompletionMode == batchv1.NonIndexedCompletion:
		waiting.Succeeded = append(waiting.Succeeded, p.UID)
	}
}

func anyContainers(t *rapid.T, p *corev1.Pod, ended metav1.Time) {
	c := corev1.ContainerStatus{Name: "c", RestartCount: int32(rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "restarts"))}
	switch p.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded:
		c.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: ended}
		if p.Status.Phase == corev1.PodFailed {
			c.State.Terminated.ExitCode = int32(rapid.IntRange(1, 2).Draw(t, "code"))
		}
		if rapid.IntRange(0, 2).Draw(t, "disrupted") == 2 {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		}
	case corev1.PodRunning:
		if rapid.Bool().Draw(t, "ready") {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: oracletest.Before(objects.Now, rapid.SampledFrom([]int{10, 20}).Draw(t, "ready since")),
			}}
		}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{c}
}
