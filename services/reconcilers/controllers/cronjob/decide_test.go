package cronjob

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	jobs "github.com/millrace/millrace/services/reconcilers/kube/job"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			v.Jobs = rapid.Permutation(v.Jobs).Draw(t, "order")
			return v
		}),
		reconciletest.Content(8, applied),
		reconciletest.Law[View]{Name: "one run at a time", Holds: oneRunAtATime},
		reconciletest.Law[View]{Name: "one run for each moment", Holds: oneRunForEachMoment},
	)
}

// oneRunForEachMoment checks that a scheduled time has one run, even if each run ends at
// once and its report comes late, while everything else is done.
func oneRunForEachMoment(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	begun := map[string]bool{}
	for _, job := range v.Jobs {
		if moment, ours := momentOf(v.CronJob, job); ours && !moment.After(now) {
			begun[job.Name] = true
		}
	}
	for range 4 {
		d := c.Decide(v, now).In(events.LaneWrite)
		for _, command := range d.Commands {
			if command.Verb == events.VerbCreate && begun[command.Name] {
				return fmt.Errorf("%s is started again", command.Name)
			}
			begun[command.Name] = begun[command.Name] || command.Verb == events.VerbCreate
		}
		v = applied(v, d, now)
		for i, job := range v.Jobs {
			if _, over := jobs.Finished(job); !over {
				v.Jobs[i] = job.DeepCopy()
				v.Jobs[i].Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
			}
		}
	}
	return nil
}

// oneRunAtATime checks that no turn starts more than one run, none that was started
// before, and none beside another if the policy is Forbid.
func oneRunAtATime(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	created := 0
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbCreate {
			continue
		}
		created++
		if slices.ContainsFunc(v.Jobs, func(j *batchv1.Job) bool { return j.Name == command.Name }) {
			return fmt.Errorf("%s is started again", command.Name)
		}
		working := slices.ContainsFunc(v.Jobs, func(j *batchv1.Job) bool {
			listed := slices.ContainsFunc(v.CronJob.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == j.UID })
			return listed && len(j.Status.Conditions) == 0 && j.DeletionTimestamp == nil && !noRun(v, j, now)
		})
		if working && v.CronJob.Spec.ConcurrencyPolicy != batchv1.AllowConcurrent {
			return fmt.Errorf("%s is started beside another", command.Name)
		}
	}
	if created > 1 {
		return fmt.Errorf("%d runs are started", created)
	}
	return nil
}

// noRun reports whether a listed Job is the manual one that made the status wrong: it is
// removed from the list, and prevents no run.
func noRun(v View, job *batchv1.Job, now time.Time) bool {
	last := v.CronJob.Status.LastScheduleTime
	return job.Annotations[byHand] == manual && last != nil && last.After(now.Add(ahead))
}

func of[T any](value T) *T { return &value }

func anyView(t *rapid.T) View {
	cj := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "batch", Name: "nightly", UID: "4f1c", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(now.Add(-3 * time.Hour)),
		},
		Spec: batchv1.CronJobSpec{
			Schedule:          rapid.SampledFrom([]string{"* * * * *", "30 * * * *", "0 12 * * *", "@every 45m", "0 0 31 2 *", "nonsense", "TZ=UTC 0 * * * *"}).Draw(t, "schedule"),
			ConcurrencyPolicy: rapid.SampledFrom([]batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}).Draw(t, "policy"),
			JobTemplate:       batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Parallelism: of(int32(1))}},
		},
	}
	if rapid.Bool().Draw(t, "deadline") {
		cj.Spec.StartingDeadlineSeconds = of(int64(rapid.IntRange(10, 4000).Draw(t, "seconds")))
	}
	if rapid.Bool().Draw(t, "limited") {
		cj.Spec.SuccessfulJobsHistoryLimit, cj.Spec.FailedJobsHistoryLimit = of(rapid.Int32Range(0, 1).Draw(t, "kept")), of(int32(0))
	}
	if rapid.IntRange(0, 3).Draw(t, "zone") == 3 {
		cj.Spec.TimeZone = of(rapid.SampledFrom([]string{"Europe/Berlin", "Nowhere/Land"}).Draw(t, "which"))
	}
	if rapid.IntRange(0, 4).Draw(t, "suspended") == 4 {
		cj.Spec.Suspend = of(true)
	}
	if rapid.IntRange(0, 6).Draw(t, "deleted") == 6 {
		reconciletest.Deleted[*batchv1.CronJob](now)(cj)
	}
	if rapid.Bool().Draw(t, "ran before") {
		cj.Status.LastScheduleTime = of(metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 170).Draw(t, "minutes ago")) * time.Minute)))
	}
	if rapid.IntRange(0, 5).Draw(t, "status is wrong") == 5 {
		cj.Status.LastScheduleTime = of(metav1.NewTime(time.Date(rapid.SampledFrom([]int{2031, 5383, 9999}).Draw(t, "year"), 12, 31, 23, 59, 0, 0, time.UTC)))
	}
	v := View{CronJob: cj}
	if rapid.Bool().Draw(t, "another schedule before") {
		v.Noted = &note{Schedule: "1 * * * *"}
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "jobs") {
		v.add(t, i)
	}
	if rapid.IntRange(0, 4).Draw(t, "one is gone") == 4 {
		cj.Status.Active = append(cj.Status.Active, corev1.ObjectReference{Name: "nightly-1", UID: "gone"})
	}
	if rapid.Bool().Draw(t, "reported") {
		for range 4 {
			v = applied(v, decide(v, now), now)
		}
	}
	return v
}

// add adds a Job to the view.
func (v *View) add(t *rapid.T, i int) {
	at := now.Add(-time.Duration(10*i+rapid.IntRange(0, 9).Draw(t, "minutes")) * time.Minute)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "batch", Name: nameOf(v.CronJob, at), UID: types.UID(fmt.Sprint("job-", i)), ResourceVersion: "3",
		Annotations: map[string]string{batchv1.CronJobScheduledTimestampAnnotation: at.Format(time.RFC3339)},
	}}
	if rapid.IntRange(0, 4).Draw(t, "by hand") == 4 {
		number := rapid.SampledFrom([]int64{1, now.Unix(), 20300101, 203001011230, at.Unix() / 60}).Draw(t, "number")
		job.Name, job.Annotations = fmt.Sprint("nightly-", number+int64(i)), map[string]string{byHand: manual}
	}
	if rapid.Bool().Draw(t, "ended") {
		job.Status.StartTime = of(metav1.NewTime(at))
		job.Status.CompletionTime = of(metav1.NewTime(at.Add(time.Minute)))
		job.Status.Conditions = []batchv1.JobCondition{{
			Type: rapid.SampledFrom([]batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed}).Draw(t, "how"), Status: corev1.ConditionTrue,
		}}
	}
	if rapid.IntRange(0, 5).Draw(t, "leaving") == 5 {
		reconciletest.Deleted[*batchv1.Job](now)(job)
	}
	if rapid.Bool().Draw(t, "listed") {
		v.CronJob.Status.Active = append(v.CronJob.Status.Active, reconcile.About(kinds.Jobs.Kind, job))
	}
	v.Jobs = append(v.Jobs, job)
}

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	v.Jobs = slices.Clone(v.Jobs)
	if len(d.In(events.LaneWrite).Commands) > 0 {
		v.Did = nil
	}
	if len(d.In(events.LaneStatus).Commands) > 0 {
		v.Told = nil
	}
	for _, c := range d.Commands {
		at := slices.IndexFunc(v.Jobs, func(j *batchv1.Job) bool { return j.Name == c.Name })
		switch c.Verb {
		case events.VerbCreate:
			created := read[batchv1.Job](c.Body)
			created.Namespace, created.Name, created.UID, created.ResourceVersion = c.Namespace, c.Name, types.UID("uid-"+c.Name), "1"
			v.Jobs = append(v.Jobs, created)
			v.Did = append(v.Did, events.Result{Status: events.Applied, Ref: c.Ref(), UID: created.UID})
		case events.VerbDelete:
			v.Did = append(v.Did, events.Result{Status: events.Applied, Ref: c.Ref(), UID: c.If.UID, Removed: true})
			v.Jobs = slices.Delete(v.Jobs, at, at+1)
		case events.VerbUpdate:
			v.CronJob = read[batchv1.CronJob](c.Body)
		case events.VerbRecord:
			if c.Kind == kinds.Events.Name {
				v.Told = append(v.Told, c.Name)
			}
			if c.Note != nil {
				v.Noted = read[note](c.Note)
			}
		}
	}
	return v
}

func read[T any](body json.RawMessage) *T {
	var value T
	if err := json.Unmarshal(body, &value); err != nil {
		panic(err)
	}
	return &value
}
