package system

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAJobByHandStopsNoCronJob: a Job that kubectl create job --from makes, with a unix time in its name,
// does not count as a run; a CronJob whose status has the far future as the time of its last run, because such
// a Job once counted, runs again.
func TestAJobByHandStopsNoCronJob(t *testing.T) {
	s := here(t)
	s.run(t)
	const name = "by-hand"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	crons, jobs := s.kube.BatchV1().CronJobs(name), s.kube.BatchV1().Jobs(name)
	work := batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "none/runs:it"}},
	}}}
	suspended := true
	cron, err := crons.Create(t.Context(), &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "backup"}, Spec: batchv1.CronJobSpec{
		Schedule: "@every 5s", Suspend: &suspended, ConcurrencyPolicy: batchv1.ForbidConcurrent, JobTemplate: batchv1.JobTemplateSpec{Spec: work},
	}}, metav1.CreateOptions{})
	must(t, err)
	manual, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("backup-%d", time.Now().Unix()), Annotations: map[string]string{"cronjob.kubernetes.io/instantiate": "manual"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
	}, Spec: work}, metav1.CreateOptions{})
	must(t, err)
	s.tells(t, name, "UnexpectedJob", manual.Name)
	cron, err = crons.Get(t.Context(), "backup", metav1.GetOptions{})
	must(t, err)
	if cron.Status.LastScheduleTime != nil || len(cron.Status.Active) > 0 {
		t.Errorf("the CronJob counts a Job that a user created as its run: %+v", cron.Status)
	}

	_, err = crons.Patch(t.Context(), "backup", types.MergePatchType, []byte(`{"status":{"lastScheduleTime":"5383-09-16T06:00:00Z"}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	s.tells(t, name, "InvalidLastScheduleTime", "5383-09-16T06:00:00Z")
	_, err = crons.Patch(t.Context(), "backup", types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{})
	must(t, err)
	within(t, patience, "the CronJob runs", func() string {
		cron, err := crons.Get(t.Context(), "backup", metav1.GetOptions{})
		switch {
		case err != nil:
			return err.Error()
		case cron.Status.LastScheduleTime == nil || cron.Status.LastScheduleTime.After(time.Now().Add(time.Minute)):
			return fmt.Sprintf("the last run is that of %v", cron.Status.LastScheduleTime)
		case len(cron.Status.Active) != 1 || cron.Status.Active[0].UID == manual.UID:
			return fmt.Sprintf("active are %v", cron.Status.Active)
		default:
			return ""
		}
	})
}

// TestClaimsGoWithASetThatNeverGotReady: no pod becomes ready here. If a StatefulSet wants its claims deleted
// with it, all are deleted, including those that are older than the set.
func TestClaimsGoWithASetThatNeverGotReady(t *testing.T) {
	s := here(t)
	s.run(t)
	const name = "never-ready"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	sets, claims, pods := s.kube.AppsV1().StatefulSets(name), s.kube.CoreV1().PersistentVolumeClaims(name), s.kube.CoreV1().Pods(name)
	spec := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "old-web-0"}, Spec: spec}, metav1.CreateOptions{})
	must(t, err)
	one, labels := int32(1), map[string]string{"app": "web"}
	_, err = sets.Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &one, ServiceName: "web", Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none/runs:it"}}}},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: spec}, {ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: spec},
		},
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		},
	}}, metav1.CreateOptions{})
	must(t, err)
	within(t, patience, "the pod is there", func() string {
		_, err := pods.Get(t.Context(), "web-0", metav1.GetOptions{})
		return ask(err)
	})
	set, err := sets.Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	for _, claim := range []string{"old-web-0", "new-web-0"} {
		within(t, patience, claim+" is the set's", func() string {
			c, err := claims.Get(t.Context(), claim, metav1.GetOptions{})
			if err == nil && !metav1.IsControlledBy(c, set) {
				return fmt.Sprintf("it is of %v", c.OwnerReferences)
			}
			return ask(err)
		})
	}
	must(t, sets.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	for _, claim := range []string{"old-web-0", "new-web-0"} {
		within(t, patience, claim+" goes with the set", func() string {
			_, err := claims.Get(t.Context(), claim, metav1.GetOptions{})
			return gone(err)
		})
	}
}

// tells waits until an Event of a reason has some words.
func (s *site) tells(t *testing.T, namespace, reason, words string) {
	t.Helper()
	within(t, patience, reason+" is told of "+words, func() string {
		told, err := s.kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err.Error()
		}
		said := "nothing is said"
		for _, e := range told.Items {
			if said = e.Message; strings.Contains(said, words) {
				return ""
			}
		}
		return said
	})
}
