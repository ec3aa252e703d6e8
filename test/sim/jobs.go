package sim

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// Jobs is what users do with Jobs and CronJobs.
var Jobs = []Operation{
	newJob, newJob, newJob, sizeJob, suspendJob, suspendJob, mortalJob, deleteJob, deletePod, failPod,
	newCron, newCron, suspendCron, deleteCron,
}

// Leaders is what users do with Jobs that one pod decides: when it succeeds, the others, which
// would succeed as well, are deleted. Meanwhile other programs write to the same Jobs.
var Leaders = []Operation{newLeaders, newLeaders, noteJob}

// leading is the image of pods that always succeed at once.
const leading = "leader:v0"

func newLeaders(w *World) {
	w.someOf(kinds.Jobs.Kind, "lead", func(name string) any {
		pods := int32(2 + w.roll(6))
		job := &batchv1.Job{
			TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec: jobSpec(pods, pods),
		}
		job.Spec.Template.Spec.Containers[0].Image = leading
		job.Spec.CompletionMode, job.Spec.BackoffLimit = new(batchv1.IndexedCompletion), new(int32(w.roll(2)))
		job.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new("0")}}}
		switch w.roll(3) {
		case 1:
			job.Spec.BackoffLimitPerIndex = new(int32(0))
		case 2:
			job.Spec.PodReplacementPolicy = new(batchv1.Failed)
		}
		return job
	})
}

func noteJob(w *World) {
	if all := w.api.List(kinds.Jobs.Name); len(all) > 0 {
		w.Annotate(refOf(kinds.Jobs.Name, all[w.roll(len(all))]), fmt.Sprint(w.tally.Steps))
	}
}

func jobRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Jobs.Name, Namespace: namespace, Name: name}
}

func (w *World) someJob() (events.Ref, bool) {
	return w.someOf(kinds.Jobs.Kind, "sum", func(name string) any { return w.anyJob(name) })
}

func (w *World) anyJob(name string) *batchv1.Job {
	job := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: jobSpec(int32(1+w.roll(3)), int32(1+w.roll(4))),
	}
	switch w.roll(4) {
	case 1:
		job.Spec.Completions = nil
	case 2:
		job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
	case 3:
		job.Spec.CompletionMode, job.Spec.BackoffLimitPerIndex = new(batchv1.IndexedCompletion), new(int32(1))
		job.Spec.BackoffLimit = new(int32(100))
	}
	if w.roll(3) == 1 {
		job.Spec.PodReplacementPolicy = new(batchv1.Failed)
	}
	return job
}

func jobSpec(parallelism, completions int32) batchv1.JobSpec {
	return batchv1.JobSpec{
		Parallelism: &parallelism, Completions: &completions,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "sum:v0"}},
		}},
	}
}

// Job changes a Job.
func (w *World) Job(name string, change func(*batchv1.Job)) {
	w.api.Change(jobRef(name), func(obj metav1.Object) { change(obj.(*batchv1.Job)) })
}

func newJob(w *World) { w.someJob() }

func sizeJob(w *World) {
	if ref, there := w.someJob(); there {
		n := int32(w.roll(4))
		w.note("user: %v may have %d pods at once", ref, n)
		w.Job(ref.Name, func(job *batchv1.Job) { job.Spec.Parallelism = &n })
	}
}

func suspendJob(w *World) {
	if ref, there := w.someJob(); there {
		w.note("user: suspend or resume %v", ref)
		w.Job(ref.Name, func(job *batchv1.Job) { job.Spec.Suspend = new(!*job.Spec.Suspend) })
	}
}

func mortalJob(w *World) {
	if ref, there := w.someJob(); there {
		seconds := int32(20 * w.roll(4))
		w.note("user: %v stays for %d s when it has finished", ref, seconds)
		w.Job(ref.Name, func(job *batchv1.Job) { job.Spec.TTLSecondsAfterFinished = &seconds })
	}
}

func deleteJob(w *World) {
	if ref, there := w.someJob(); there {
		w.Delete(ref, propagations[w.roll(3)])
	}
}

// someCron is a CronJob whose schedule is that of soonAfter.
func (w *World) someCron() (events.Ref, bool) {
	return w.someOf(kinds.CronJobs.Kind, "cron", func(name string) any {
		policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
		cron := cronJob(name, w.soonAfter(), policies[w.roll(3)])
		cron.Spec.SuccessfulJobsHistoryLimit = new(int32(w.roll(2)))
		return cron
	})
}

// soonAfter is a schedule with two times a day, both in the next minutes.
func (w *World) soonAfter() string {
	at := w.now.Add(time.Duration(1+w.roll(3)) * time.Minute).UTC()
	return fmt.Sprintf("%d,%d %d * * *", at.Minute(), at.Add(time.Minute).Minute(), at.Hour())
}

func cronJob(name, schedule string, policy batchv1.ConcurrencyPolicy) *batchv1.CronJob {
	return &batchv1.CronJob{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: batchv1.CronJobSpec{
			Schedule: schedule, ConcurrencyPolicy: policy,
			Suspend: new(false), SuccessfulJobsHistoryLimit: new(int32(1)), FailedJobsHistoryLimit: new(int32(1)),
			JobTemplate: batchv1.JobTemplateSpec{Spec: jobSpec(1, 1)},
		},
	}
}

func newCron(w *World) { w.someCron() }

func suspendCron(w *World) {
	if ref, there := w.someCron(); there {
		w.note("user: suspend or resume %v", ref)
		w.api.Change(ref, func(obj metav1.Object) {
			cron := obj.(*batchv1.CronJob)
			cron.Spec.Suspend = new(!*cron.Spec.Suspend)
		})
	}
}

func deleteCron(w *World) {
	if ref, there := w.someCron(); there {
		w.Delete(ref, propagations[w.roll(3)])
	}
}

// runs reports whether a pod ends by itself.
func runs(pod *corev1.Pod) bool { return pod.Spec.RestartPolicy == corev1.RestartPolicyNever }

// end ends a pod of a Job, most often with success.
func (w *World) end(obj metav1.Object) {
	phase, code := corev1.PodSucceeded, int32(0)
	image := imageOfPod(obj.(*corev1.Pod))
	if image == failing || image != leading && w.roll(5) == 1 {
		phase, code = corev1.PodFailed, 1
	}
	w.ended(obj, phase, code)
}

// kill ends a pod that was killed.
func (w *World) kill(obj metav1.Object) { w.ended(obj, corev1.PodFailed, 137) }

func (w *World) ended(obj metav1.Object, phase corev1.PodPhase, code int32) {
	pod := obj.(*corev1.Pod)
	pod.Status.Phase, pod.Status.Conditions = phase, nil
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(w.now.Truncate(time.Second))},
	}}}
}

// ledger is the real results of the pods of a Job.
type ledger struct {
	succeeded, failed map[types.UID]bool
	led               bool // the pod with the first index has succeeded
}

// counted reports whether a pod waits to be counted by its Job.
func counted(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// worked records the result of a pod of a Job.
func (g *guard) worked(old, now metav1.Object) {
	pod, ok := now.(*corev1.Pod)
	if !ok {
		pod = old.(*corev1.Pod)
	}
	at := controllerOf(pod)
	if at == "" {
		return
	}
	l := g.work[at]
	if l == nil {
		l = &ledger{succeeded: map[types.UID]bool{}, failed: map[types.UID]bool{}}
		g.work[at] = l
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		l.succeeded[pod.UID] = true
		l.led = l.led || pod.Annotations[batchv1.JobCompletionIndexAnnotation] == "0"
	case pod.Status.Phase == corev1.PodFailed, pod.DeletionTimestamp != nil:
		l.failed[pod.UID] = true
	}
}

// told checks the counts in the status of a Job: it counts no pod that did not end so, none
// twice, and forgets none.
func (g *guard) told(old, now metav1.Object) {
	job, ok := now.(*batchv1.Job)
	if !ok {
		return
	}
	l := g.work[job.UID]
	if l == nil {
		l = &ledger{}
	}
	if n := int(job.Status.Succeeded); n > len(l.succeeded) {
		g.breaks("I6", "%s counts %d pods that succeeded; there were %d", job.Name, n, len(l.succeeded))
	}
	if n := int(job.Status.Failed); n > len(l.failed) {
		g.breaks("I6", "%s counts %d pods that failed; there were %d", job.Name, n, len(l.failed))
	}
	if says(job, batchv1.JobFailureTarget) && l.led && job.Spec.SuccessPolicy != nil {
		g.breaks("O2", "%s fails, and the pod that decides has succeeded", job.Name)
	}
	was, ok := old.(*batchv1.Job)
	if !ok || g.restoring {
		return
	}
	if job.Status.Succeeded < was.Status.Succeeded || job.Status.Failed < was.Status.Failed {
		g.breaks("I6", "%s forgets pods that it had counted", job.Name)
	}
	if _, over := endOf(was); over && job.Status.Active > 0 {
		g.breaks("I2", "%s has finished and has %d pods at work", job.Name, job.Status.Active)
	}
}

// says reports whether a condition of a Job holds.
func says(job *batchv1.Job, what batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == what && c.Status == corev1.ConditionTrue
	})
}

// dismisses checks the deletion of a pod by its Job: if the pod waits to be counted, the Job
// has said that it ends, or the deletion counts as a failure.
func (g *guard) dismisses(pod *corev1.Pod) {
	job, there := g.world.api.Get(jobRef(ownerOf(pod))).(*batchv1.Job)
	if !there || !counted(pod) || says(job, batchv1.JobSuccessCriteriaMet) || says(job, batchv1.JobFailureTarget) {
		return
	}
	g.breaks("O1", "pod %s is deleted, and %s does not say why", pod.Name, job.Name)
}

// atOnce is how many pods of a Job may be active.
func atOnce(job *batchv1.Job) int {
	if n := job.Spec.Completions; n != nil {
		return int(min(*n, *job.Spec.Parallelism))
	}
	return int(*job.Spec.Parallelism)
}

// endOf is the final condition of a Job.
func endOf(job *batchv1.Job) (end batchv1.JobCondition, over bool) {
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c, true
		}
	}
	return end, false
}

// expires checks a finished Job that is about to be deleted because of its TTL, by the clock of
// the process that decided.
func (g *guard) expires(c *carrying, job *batchv1.Job) {
	end, over := endOf(job)
	ttl := job.Spec.TTLSecondsAfterFinished
	if !over || ttl == nil || end.LastTransitionTime.Add(time.Duration(*ttl)*time.Second).After(c.turn.Now) {
		g.breaks("I4", "%s is deleted, and has not been finished for as long as it may stay", job.Name)
	}
}

// runOf checks the create of a Job of a CronJob: if only one Job may be active, no other one
// is.
func (g *guard) runOf(old, now metav1.Object) {
	job, ok := now.(*batchv1.Job)
	if !ok || old != nil || g.restoring {
		return
	}
	g.begins(job)
	owner := metav1.GetControllerOfNoCopy(job)
	if owner == nil {
		return
	}
	cron, lives := g.world.api.Get(events.Ref{Kind: kinds.CronJobs.Name, Namespace: namespace, Name: owner.Name}).(*batchv1.CronJob)
	if !lives || cron.UID != owner.UID || cron.Spec.ConcurrencyPolicy == batchv1.AllowConcurrent {
		return
	}
	for _, obj := range g.world.api.List(kinds.Jobs.Name) {
		if _, over := endOf(obj.(*batchv1.Job)); !over && obj.GetUID() != job.UID && controllerOf(obj) == cron.UID {
			g.breaks("I2", "%s is created while %s is at work", job.Name, obj.GetName())
		}
	}
}

// worksDone reports whether every Job has ended, or is suspended, and has no pod left to be
// counted.
func (w *World) worksDone(pods map[types.UID]int) error {
	for _, obj := range w.api.List(kinds.Jobs.Name) {
		if err := w.workDone(obj.(*batchv1.Job), pods[obj.GetUID()]); err != nil {
			return err
		}
	}
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		job, there := w.api.Get(jobRef(ownerOf(pod))).(*batchv1.Job)
		if !counted(pod) || !there || job.UID != controllerOf(pod) {
			if counted(pod) {
				return fmt.Errorf("pod %s waits to be counted by a Job that is gone", pod.Name)
			}
			continue
		}
		if _, over := endOf(job); over {
			return fmt.Errorf("pod %s waits to be counted, and %s has finished", pod.Name, job.Name)
		}
	}
	return nil
}

func (w *World) workDone(job *batchv1.Job, pods int) error {
	end, over := endOf(job)
	waiting := job.Status.UncountedTerminatedPods
	switch {
	case job.DeletionTimestamp != nil:
		return fmt.Errorf("%s is still on its way out", job.Name)
	case int(job.Status.Active) != pods:
		return fmt.Errorf("%s says %d pods at work; there are %d", job.Name, job.Status.Active, pods)
	case waiting != nil && len(waiting.Succeeded)+len(waiting.Failed) > 0:
		return fmt.Errorf("%s has not counted all of its pods", job.Name)
	case !over && !*job.Spec.Suspend && *job.Spec.Parallelism > 0:
		return fmt.Errorf("%s has not finished", job.Name)
	case end.Type == batchv1.JobComplete && job.Spec.Completions != nil && job.Spec.SuccessPolicy == nil && job.Status.Succeeded < *job.Spec.Completions:
		return fmt.Errorf("%s is complete with %d of %d", job.Name, job.Status.Succeeded, *job.Spec.Completions)
	case job.Spec.SuccessPolicy != nil && (end.Type != batchv1.JobComplete || job.Status.Failed > 0):
		return fmt.Errorf("%s should be complete without a failure: %+v", job.Name, job.Status)
	case over && job.Spec.TTLSecondsAfterFinished != nil && end.LastTransitionTime.After(w.now):
		w.late = true
		w.guard.spare(endsLater)
	case over && job.Spec.TTLSecondsAfterFinished != nil:
		return fmt.Errorf("%s has finished and should be gone by now", job.Name)
	case !over && *job.Spec.Suspend && pods > 0:
		return fmt.Errorf("%s is suspended and has %d pods", job.Name, pods)
	}
	return nil
}

// stays records that a writer was told that a Job was not deleted.
func (g *guard) stays(r plan.Request, answer plan.Response) {
	if r.Verb == plan.Delete && r.Kind == kinds.Jobs.Name && answer.Code != http.StatusOK {
		g.stayed[jobRef(r.Name)] = true
	}
}

// runsKept reports whether every CronJob has no more ended runs than its limit.
func (w *World) runsKept() error {
	for _, obj := range w.api.List(kinds.CronJobs.Name) {
		cron := obj.(*batchv1.CronJob)
		well, badly, stay := 0, 0, false
		for _, obj := range w.api.List(kinds.Jobs.Name) {
			if controllerOf(obj) != cron.UID {
				continue
			}
			stay = stay || w.guard.stayed[jobRef(obj.GetName())]
			switch end, _ := endOf(obj.(*batchv1.Job)); end.Type {
			case batchv1.JobComplete:
				well++
			case batchv1.JobFailed:
				badly++
			}
		}
		switch {
		case cron.DeletionTimestamp != nil:
			return fmt.Errorf("%s is still on its way out", cron.Name)
		case (well > int(*cron.Spec.SuccessfulJobsHistoryLimit) || badly > int(*cron.Spec.FailedJobsHistoryLimit)) && stay && !*cron.Spec.Suspend:
			w.guard.spare(keptOn)
		case well > int(*cron.Spec.SuccessfulJobsHistoryLimit) || badly > int(*cron.Spec.FailedJobsHistoryLimit):
			return fmt.Errorf("%s has kept %d runs that went well and %d that did not", cron.Name, well, badly)
		case len(cron.Status.Active) > 0 && !slices.ContainsFunc(w.api.List(kinds.Jobs.Name), func(o metav1.Object) bool { return controllerOf(o) == cron.UID }):
			return fmt.Errorf("%s says that a run is at work; there is none", cron.Name)
		}
	}
	return nil
}
