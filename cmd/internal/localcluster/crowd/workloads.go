package crowd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var workloads = []workload{
	{"statefulset", 3, 2, (*worker).statefulSet, (*worker).resize, clientOf[*appsv1.StatefulSet](func(c *Crowd, ns string) any { return c.client.AppsV1().StatefulSets(ns) })},
	{"daemonset", 1, 1, (*worker).daemonSet, (*worker).reimage, clientOf[*appsv1.DaemonSet](func(c *Crowd, ns string) any { return c.client.AppsV1().DaemonSets(ns) })},
	{"job", 3, 3, (*worker).job, (*worker).parallel, clientOf[*batchv1.Job](func(c *Crowd, ns string) any { return c.client.BatchV1().Jobs(ns) })},
	{"cronjob", 1, 2, (*worker).cronJob, nil, clientOf[*batchv1.CronJob](func(c *Crowd, ns string) any { return c.client.BatchV1().CronJobs(ns) })},
	{"replicaset", 1, 1, (*worker).replicaSet, (*worker).rescale, clientOf[*appsv1.ReplicaSet](func(c *Crowd, ns string) any { return c.client.AppsV1().ReplicaSets(ns) })},
	{"rc", 1, 1, (*worker).replicationController, (*worker).rescale, clientOf[*corev1.ReplicationController](func(c *Crowd, ns string) any { return c.client.CoreV1().ReplicationControllers(ns) })},
	{"budget", 2, 2, (*worker).budget, (*worker).rebudget, clientOf[*policyv1.PodDisruptionBudget](func(c *Crowd, ns string) any { return c.client.PolicyV1().PodDisruptionBudgets(ns) })},
}

// adopts is whether an object of the kind adopts dependents of an earlier object with its name.
func (k *workload) adopts() bool {
	return slices.Contains([]string{"statefulset", "replicaset", "rc"}, k.name)
}

// names are the names of objects, which also serve as label values.
func names(kind string, n int) string { return fmt.Sprintf("%s-%d", kind, n) }

// typed is the part of a typed client that all kinds have.
type typed[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, o metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

func clientOf[T any](of func(c *Crowd, namespace string) any) func(*Crowd, string) client {
	return func(c *Crowd, namespace string) client {
		objects := of(c, namespace).(typed[T])
		return client{
			create: func(ctx context.Context, object any) error {
				_, err := objects.Create(ctx, object.(T), metav1.CreateOptions{})
				return err
			},
			patch: func(ctx context.Context, name string, kind types.PatchType, body []byte) error {
				_, err := objects.Patch(ctx, name, kind, body, metav1.PatchOptions{})
				return err
			},
			remove: objects.Delete,
		}
	}
}

// lost is whether a failed request may have been carried out.
func lost(err error) bool { return apierrors.ReasonForError(err) == "" }

func isGone(err error) bool { return apierrors.IsNotFound(err) }

func (w *worker) patch(ctx context.Context, t thing, spec map[string]any) error {
	body, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	kind := types.StrategicMergePatchType
	return t.kind.client(w.crowd, w.namespace).patch(ctx, t.name, kind, body)
}

func (w *worker) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: w.namespace}
}

func (w *worker) replicas() *int32 {
	n := w.rand.Int32N(5)
	return &n
}

// template is the template of pods that run forever, or that run a command and end.
func (w *worker) template(name string, command ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: imageOf(w.rand.IntN(images)), Command: command}}},
	}
	if len(command) > 0 {
		t.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	return t
}

func selector(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func (w *worker) statefulSet(name string) any {
	s := &appsv1.StatefulSet{ObjectMeta: w.meta(name), Spec: appsv1.StatefulSetSpec{
		Replicas: w.replicas(), Selector: selector(name), Template: w.template(name), ServiceName: name,
		PodManagementPolicy: []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement}[w.rand.IntN(2)],
	}}
	if w.rand.IntN(2) == 0 {
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}}
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		}
	}
	return s
}

func (w *worker) daemonSet(name string) any {
	d := &appsv1.DaemonSet{ObjectMeta: w.meta(name), Spec: appsv1.DaemonSetSpec{Selector: selector(name), Template: w.template(name)}}
	if w.rand.IntN(2) == 0 {
		one, none := intstr.FromInt32(1), intstr.FromInt32(0)
		d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: &one, MaxUnavailable: &none}
	}
	return d
}

func (w *worker) job(name string) any {
	parallelism, completions, retries := 1+w.rand.Int32N(3), 1+w.rand.Int32N(5), int32(3)
	ends := []string{"true"}
	if w.rand.IntN(5) == 0 {
		ends, retries = []string{"false"}, 1 // it fails for good, after waiting
	}
	j := &batchv1.Job{ObjectMeta: w.meta(name), Spec: batchv1.JobSpec{
		Parallelism: &parallelism, Completions: &completions, BackoffLimit: &retries, Template: w.template(name, ends...),
	}}
	if w.rand.IntN(2) == 0 {
		indexed := batchv1.IndexedCompletion
		j.Spec.CompletionMode = &indexed
	}
	if w.rand.IntN(4) == 0 {
		after := int32(10)
		j.Spec.TTLSecondsAfterFinished = &after
	}
	return j
}

func (w *worker) cronJob(name string) any {
	kept := int32(2)
	policy := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}[w.rand.IntN(3)]
	job := w.job(name).(*batchv1.Job).Spec
	job.TTLSecondsAfterFinished = nil
	return &batchv1.CronJob{ObjectMeta: w.meta(name), Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", ConcurrencyPolicy: policy, SuccessfulJobsHistoryLimit: &kept, FailedJobsHistoryLimit: &kept,
		JobTemplate: batchv1.JobTemplateSpec{Spec: job},
	}}
}

func (w *worker) replicaSet(name string) any {
	return &appsv1.ReplicaSet{ObjectMeta: w.meta(name), Spec: appsv1.ReplicaSetSpec{Replicas: w.replicas(), Selector: selector(name), Template: w.template(name)}}
}

func (w *worker) replicationController(name string) any {
	template := w.template(name)
	return &corev1.ReplicationController{ObjectMeta: w.meta(name), Spec: corev1.ReplicationControllerSpec{
		Replicas: w.replicas(), Selector: template.Labels, Template: &template,
	}}
}

// budget is a PodDisruptionBudget for the pods of one of the worker's objects.
func (w *worker) budget(name string) any {
	one := intstr.FromInt32(1)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: w.meta(name), Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector("none")}}
	if t, ok := w.some(thing.runs); ok {
		b.Spec.Selector = selector(t.name)
	}
	if w.rand.IntN(2) == 0 {
		b.Spec.MinAvailable = &one
	} else {
		b.Spec.MaxUnavailable = &one
	}
	return b
}

// runs is whether an object has pods that run forever.
func (t thing) runs() bool {
	return slices.Contains([]string{"statefulset", "replicaset", "rc"}, t.kind.name)
}

// resize changes the number of replicas, or the pod template, or both.
func (w *worker) resize() map[string]any {
	switch w.rand.IntN(3) {
	case 0:
		return w.rescale()
	case 1:
		return w.reimage()
	}
	spec := w.reimage()
	spec["replicas"] = w.replicas()
	return spec
}

func (w *worker) rescale() map[string]any { return map[string]any{"replicas": w.replicas()} }

func (w *worker) reimage() map[string]any {
	return map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "main", "image": imageOf(w.rand.IntN(images))}}}}}
}

// parallel changes the parallelism of a Job, or suspends it; endRuns resumes suspended Jobs.
func (w *worker) parallel() map[string]any {
	if w.rand.IntN(3) == 0 {
		return map[string]any{"suspend": true}
	}
	return map[string]any{"suspend": false, "parallelism": 1 + w.rand.IntN(3)}
}

func (w *worker) rebudget() map[string]any {
	t, ok := w.some(thing.runs)
	if !ok {
		return map[string]any{}
	}
	return map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": t.name}}}
}
