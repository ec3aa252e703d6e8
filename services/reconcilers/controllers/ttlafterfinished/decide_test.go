package ttlafterfinished

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Content(2, func(v View, _ reconcile.Decision, now time.Time) View {
			gone := *v.Job
			at := metav1.NewTime(now)
			gone.DeletionTimestamp = &at
			return View{Job: &gone}
		}))
}

func anyView(t *rapid.T) View {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "nightly", UID: "4f1c", ResourceVersion: "7"}}
	if rapid.Bool().Draw(t, "mortal") {
		kept := rapid.SampledFrom([]int32{0, 1, 60, 3600}).Draw(t, "kept")
		job.Spec.TTLSecondsAfterFinished = &kept
	}
	if rapid.Bool().Draw(t, "ended") {
		ago := time.Duration(rapid.IntRange(-60, 7200).Draw(t, "ended, seconds ago")) * time.Second
		job.Status.Conditions = []batchv1.JobCondition{{
			Type:               rapid.SampledFrom([]batchv1.JobConditionType{"Complete", "Failed", "Suspended"}).Draw(t, "how"),
			Status:             rapid.SampledFrom([]corev1.ConditionStatus{"True", "False"}).Draw(t, "so"),
			LastTransitionTime: metav1.NewTime(now.Add(-ago)),
		}}
	}
	if rapid.IntRange(0, 5).Draw(t, "deleted") == 5 {
		reconciletest.Deleted[*batchv1.Job](now)(job)
	}
	return View{Job: job}
}

func TestObserve(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "nightly"}}
	world := reconciletest.NewWorld().Put(kinds.Jobs.Kind, job)
	key := events.Key{Namespace: "batch", Name: "nightly"}
	if v, ok := observe(world, key); !ok || v.Job != job {
		t.Errorf("the view is %v, found: %v", v.Job, ok)
	}
	if _, ok := observe(world, events.Key{Namespace: "batch", Name: "absent"}); ok {
		t.Error("observe finds a Job that is not there")
	}
}

func TestTheDelayIsMeasured(t *testing.T) {
	kept := int32(60)
	v := View{Job: &batchv1.Job{Spec: batchv1.JobSpec{TTLSecondsAfterFinished: &kept}, Status: batchv1.JobStatus{
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}},
	}}}
	d := decide(v, now.Add(62*time.Second))
	if len(d.Figures) != 1 || d.Figures[0].Metric != delay.Name || d.Figures[0].Value != 2 {
		t.Errorf("figures %v, want 2 seconds", d.Figures)
	}
}
