package workloads

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
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
)

// Jobs is what users do with Jobs and CronJobs.
var Jobs = []cluster.Operation{
	newJob, newJob, newJob, sizeJob, suspendJob, suspendJob, mortalJob, deleteJob, cluster.DeletePod, cluster.FailPod,
	newCron, newCron, suspendCron, deleteCron,
}

// Leaders is what users do with Jobs that one pod decides: when it succeeds, the others, which
// would succeed as well, are deleted. Meanwhile other programs write to the same Jobs.
var Leaders = []cluster.Operation{newLeaders, newLeaders, noteJob}

func newLeaders(w *cluster.Cluster) {
	w.SomeOf(kinds.Jobs.Kind, "lead", func(name string) any {
		pods := int32(2 + w.Roll(6))
		job := &batchv1.Job{
			TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
			Spec: JobSpec(pods, pods),
		}
		job.Spec.Template.Spec.Containers[0].Image = nodes.Leading
		job.Spec.CompletionMode, job.Spec.BackoffLimit = new(batchv1.IndexedCompletion), new(int32(w.Roll(2)))
		job.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new("0")}}}
		switch w.Roll(3) {
		case 1:
			job.Spec.BackoffLimitPerIndex = new(int32(0))
		case 2:
			job.Spec.PodReplacementPolicy = new(batchv1.Failed)
		}
		return job
	})
}

func noteJob(w *cluster.Cluster) {
	if all := w.API.List(kinds.Jobs.Name); len(all) > 0 {
		w.Annotate(apiserver.RefOf(kinds.Jobs.Name, all[w.Roll(len(all))]), fmt.Sprint(w.Counts.Steps))
	}
}

func jobRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Jobs.Name, Namespace: cluster.Namespace, Name: name}
}

func someJob(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.Jobs.Kind, "sum", func(name string) any { return anyJob(w, name) })
}

func anyJob(w *cluster.Cluster, name string) *batchv1.Job {
	job := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
		Spec: JobSpec(int32(1+w.Roll(3)), int32(1+w.Roll(4))),
	}
	switch w.Roll(4) {
	case 1:
		job.Spec.Completions = nil
	case 2:
		job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
	case 3:
		job.Spec.CompletionMode, job.Spec.BackoffLimitPerIndex = new(batchv1.IndexedCompletion), new(int32(1))
		job.Spec.BackoffLimit = new(int32(100))
	}
	if w.Roll(3) == 1 {
		job.Spec.PodReplacementPolicy = new(batchv1.Failed)
	}
	return job
}

// JobSpec is the spec of a Job.
func JobSpec(parallelism, completions int32) batchv1.JobSpec {
	return batchv1.JobSpec{
		Parallelism: &parallelism, Completions: &completions,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "sum:v0"}},
		}},
	}
}

// Job changes a Job.
func Job(w *cluster.Cluster, name string, change func(*batchv1.Job)) {
	w.API.Change(jobRef(name), func(obj metav1.Object) { change(obj.(*batchv1.Job)) })
}

func newJob(w *cluster.Cluster) { someJob(w) }

func sizeJob(w *cluster.Cluster) {
	if ref, there := someJob(w); there {
		n := int32(w.Roll(4))
		w.Note("user: %v may have %d pods at once", ref, n)
		Job(w, ref.Name, func(job *batchv1.Job) { job.Spec.Parallelism = &n })
	}
}

func suspendJob(w *cluster.Cluster) {
	if ref, there := someJob(w); there {
		w.Note("user: suspend or resume %v", ref)
		Job(w, ref.Name, func(job *batchv1.Job) { job.Spec.Suspend = new(!*job.Spec.Suspend) })
	}
}

func mortalJob(w *cluster.Cluster) {
	if ref, there := someJob(w); there {
		seconds := int32(20 * w.Roll(4))
		w.Note("user: %v stays for %d s when it has finished", ref, seconds)
		Job(w, ref.Name, func(job *batchv1.Job) { job.Spec.TTLSecondsAfterFinished = &seconds })
	}
}

func deleteJob(w *cluster.Cluster) {
	if ref, there := someJob(w); there {
		w.Delete(ref, cluster.Propagations[w.Roll(3)])
	}
}

// someCron is a CronJob whose schedule is that of soonAfter.
func someCron(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.CronJobs.Kind, "cron", func(name string) any {
		policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
		cron := CronJob(name, soonAfter(w), policies[w.Roll(3)])
		cron.Spec.SuccessfulJobsHistoryLimit = new(int32(w.Roll(2)))
		return cron
	})
}

// soonAfter is a schedule with two times a day, both in the next minutes.
func soonAfter(w *cluster.Cluster) string {
	at := w.Now.Add(time.Duration(1+w.Roll(3)) * time.Minute).UTC()
	return fmt.Sprintf("%d,%d %d * * *", at.Minute(), at.Add(time.Minute).Minute(), at.Hour())
}

// CronJob is a CronJob with a schedule.
func CronJob(name, schedule string, policy batchv1.ConcurrencyPolicy) *batchv1.CronJob {
	return &batchv1.CronJob{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
		Spec: batchv1.CronJobSpec{
			Schedule: schedule, ConcurrencyPolicy: policy,
			Suspend: new(false), SuccessfulJobsHistoryLimit: new(int32(1)), FailedJobsHistoryLimit: new(int32(1)),
			JobTemplate: batchv1.JobTemplateSpec{Spec: JobSpec(1, 1)},
		},
	}
}

func newCron(w *cluster.Cluster) { someCron(w) }

func suspendCron(w *cluster.Cluster) {
	if ref, there := someCron(w); there {
		w.Note("user: suspend or resume %v", ref)
		w.API.Change(ref, func(obj metav1.Object) {
			cron := obj.(*batchv1.CronJob)
			cron.Spec.Suspend = new(!*cron.Spec.Suspend)
		})
	}
}

func deleteCron(w *cluster.Cluster) {
	if ref, there := someCron(w); there {
		w.Delete(ref, cluster.Propagations[w.Roll(3)])
	}
}

// counted reports whether a pod waits to be counted by its Job.
func counted(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// Worked records the result of a pod of a Job.
func Worked(g *cluster.Guard, old, now metav1.Object) {
	pod, ok := now.(*corev1.Pod)
	if !ok {
		pod = old.(*corev1.Pod)
	}
	at := cluster.ControllerOf(pod)
	if at == "" {
		return
	}
	l := g.Jobs.Work[at]
	if l == nil {
		l = &cluster.Ledger{Succeeded: map[types.UID]bool{}, Failed: map[types.UID]bool{}}
		g.Jobs.Work[at] = l
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		l.Succeeded[pod.UID] = true
		l.Led = l.Led || pod.Annotations[batchv1.JobCompletionIndexAnnotation] == "0"
	case pod.Status.Phase == corev1.PodFailed, pod.DeletionTimestamp != nil:
		l.Failed[pod.UID] = true
	}
}

// Told checks the counts in the status of a Job: it counts no pod that did not end so, none
// twice, and forgets none.
func Told(g *cluster.Guard, old, now metav1.Object) {
	job, ok := now.(*batchv1.Job)
	if !ok {
		return
	}
	l := g.Jobs.Work[job.UID]
	if l == nil {
		l = &cluster.Ledger{}
	}
	if n := int(job.Status.Succeeded); n > len(l.Succeeded) {
		g.Breaks("I6", "%s counts %d pods that succeeded; there were %d", job.Name, n, len(l.Succeeded))
	}
	if n := int(job.Status.Failed); n > len(l.Failed) {
		g.Breaks("I6", "%s counts %d pods that failed; there were %d", job.Name, n, len(l.Failed))
	}
	if says(job, batchv1.JobFailureTarget) && l.Led && job.Spec.SuccessPolicy != nil {
		g.Breaks("O2", "%s fails, and the pod that decides has succeeded", job.Name)
	}
	was, ok := old.(*batchv1.Job)
	if !ok || g.Record.Restoring {
		return
	}
	if job.Status.Succeeded < was.Status.Succeeded || job.Status.Failed < was.Status.Failed {
		g.Breaks("I6", "%s forgets pods that it had counted", job.Name)
	}
	if _, over := EndOf(was); over && job.Status.Active > 0 {
		g.Breaks("I2", "%s has finished and has %d pods at work", job.Name, job.Status.Active)
	}
}

// says reports whether a condition of a Job holds.
func says(job *batchv1.Job, what batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == what && c.Status == corev1.ConditionTrue
	})
}

// Dismisses checks the deletion of a pod by its Job: if the pod waits to be counted, the Job
// has said that it ends, or the deletion counts as a failure.
func Dismisses(g *cluster.Guard, pod *corev1.Pod) {
	job, there := g.World.API.Get(jobRef(cluster.OwnerOf(pod))).(*batchv1.Job)
	if !there || !counted(pod) || says(job, batchv1.JobSuccessCriteriaMet) || says(job, batchv1.JobFailureTarget) {
		return
	}
	g.Breaks("O1", "pod %s is deleted, and %s does not say why", pod.Name, job.Name)
}

// atOnce is how many pods of a Job may be active.
func atOnce(job *batchv1.Job) int {
	if n := job.Spec.Completions; n != nil {
		return int(min(*n, *job.Spec.Parallelism))
	}
	return int(*job.Spec.Parallelism)
}

// EndOf is the final condition of a Job.
func EndOf(job *batchv1.Job) (end batchv1.JobCondition, over bool) {
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c, true
		}
	}
	return end, false
}

// expires checks a finished Job that is about to be deleted because of its TTL, by the clock of
// the process that decided.
func expires(g *cluster.Guard, c *cluster.Taken, job *batchv1.Job) {
	end, over := EndOf(job)
	ttl := job.Spec.TTLSecondsAfterFinished
	if !over || ttl == nil || end.LastTransitionTime.Add(time.Duration(*ttl)*time.Second).After(c.Turn.Now) {
		g.Breaks("I4", "%s is deleted, and has not been finished for as long as it may stay", job.Name)
	}
}

// RunOf checks the create of a Job of a CronJob: if only one Job may be active, no other one
// is.
func RunOf(g *cluster.Guard, old, now metav1.Object) {
	job, ok := now.(*batchv1.Job)
	if !ok || old != nil || g.Record.Restoring {
		return
	}
	begins(g, job)
	owner := metav1.GetControllerOfNoCopy(job)
	if owner == nil {
		return
	}
	cron, lives := g.World.API.Get(events.Ref{Kind: kinds.CronJobs.Name, Namespace: cluster.Namespace, Name: owner.Name}).(*batchv1.CronJob)
	if !lives || cron.UID != owner.UID || cron.Spec.ConcurrencyPolicy == batchv1.AllowConcurrent {
		return
	}
	for _, obj := range g.World.API.List(kinds.Jobs.Name) {
		if _, over := EndOf(obj.(*batchv1.Job)); !over && obj.GetUID() != job.UID && cluster.ControllerOf(obj) == cron.UID {
			g.Breaks("I2", "%s is created while %s is at work", job.Name, obj.GetName())
		}
	}
}

// WorksDone reports whether every Job has ended, or is suspended, and has no pod left to be
// counted.
func WorksDone(w *cluster.Cluster, pods map[types.UID]int) error {
	for _, obj := range w.API.List(kinds.Jobs.Name) {
		if err := workDone(w, obj.(*batchv1.Job), pods[obj.GetUID()]); err != nil {
			return err
		}
	}
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		job, there := w.API.Get(jobRef(cluster.OwnerOf(pod))).(*batchv1.Job)
		if !counted(pod) || !there || job.UID != cluster.ControllerOf(pod) {
			if counted(pod) {
				return fmt.Errorf("pod %s waits to be counted by a Job that is gone", pod.Name)
			}
			continue
		}
		if _, over := EndOf(job); over {
			return fmt.Errorf("pod %s waits to be counted, and %s has finished", pod.Name, job.Name)
		}
	}
	return nil
}

func workDone(w *cluster.Cluster, job *batchv1.Job, pods int) error {
	end, over := EndOf(job)
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
	case over && job.Spec.TTLSecondsAfterFinished != nil && end.LastTransitionTime.After(w.Now):
		w.Rest.Late = true
		w.Guard.Spare(cluster.EndsLater)
	case over && job.Spec.TTLSecondsAfterFinished != nil:
		return fmt.Errorf("%s has finished and should be gone by now", job.Name)
	case !over && *job.Spec.Suspend && pods > 0:
		return fmt.Errorf("%s is suspended and has %d pods", job.Name, pods)
	}
	return nil
}

// FailsToDelete records that a writer was told that a Job was not deleted.
func FailsToDelete(g *cluster.Guard, r plan.Request, answer plan.Response) {
	if r.Verb == plan.Delete && r.Kind == kinds.Jobs.Name && answer.Code != http.StatusOK {
		g.Jobs.Stayed[jobRef(r.Name)] = true
	}
}

// RunsKept reports whether every CronJob has no more ended runs than its limit.
func RunsKept(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.CronJobs.Name) {
		cron := obj.(*batchv1.CronJob)
		well, badly, stay := 0, 0, false
		for _, obj := range w.API.List(kinds.Jobs.Name) {
			if cluster.ControllerOf(obj) != cron.UID {
				continue
			}
			stay = stay || w.Guard.Jobs.Stayed[jobRef(obj.GetName())]
			switch end, _ := EndOf(obj.(*batchv1.Job)); end.Type {
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
			w.Guard.Spare(cluster.KeptOn)
		case well > int(*cron.Spec.SuccessfulJobsHistoryLimit) || badly > int(*cron.Spec.FailedJobsHistoryLimit):
			return fmt.Errorf("%s has kept %d runs that went well and %d that did not", cron.Name, well, badly)
		case len(cron.Status.Active) > 0 && !slices.ContainsFunc(w.API.List(kinds.Jobs.Name), func(o metav1.Object) bool { return cluster.ControllerOf(o) == cron.UID }):
			return fmt.Errorf("%s says that a run is at work; there is none", cron.Name)
		}
	}
	return nil
}
