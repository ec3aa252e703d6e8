package arena

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// noScheduler is the name of a scheduler that does not exist.
const noScheduler = "none"

// DeployUnscheduled creates a Deployment whose Pods no scheduler schedules, so that nothing
// happens to them after their creation.
func (a *Arena) DeployUnscheduled(ctx context.Context, name, image string, replicas int) error {
	d := deploymentOf(a.Namespace, name, image, replicas)
	d.Spec.Template.Spec.SchedulerName = noScheduler
	return a.create(ctx, d)
}

// Job creates a Job whose Pods succeed by themselves, parallelism of them at a time.
func (a *Arena) Job(ctx context.Context, name string, completions, parallelism int) error {
	n, at := int32(completions), int32(parallelism)
	spec := podSpec("busybox")
	spec.RestartPolicy, spec.Containers[0].Command = corev1.RestartPolicyNever, []string{"true"}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.Namespace},
		Spec:       batchv1.JobSpec{Completions: &n, Parallelism: &at, Template: corev1.PodTemplateSpec{Spec: spec}},
	}
	if _, err := a.client.BatchV1().Jobs(a.Namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create job %s: %w", name, err)
	}
	return nil
}

// DeleteJob deletes a Job; the garbage collector deletes its Pods.
func (a *Arena) DeleteJob(ctx context.Context, name string) error {
	background := metav1.DeletePropagationBackground
	if err := a.client.BatchV1().Jobs(a.Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		return fmt.Errorf("delete job %s: %w", name, err)
	}
	return nil
}

// StatefulSet creates a StatefulSet with the policy OrderedReady.
func (a *Arena) StatefulSet(ctx context.Context, name, image string, replicas int) error {
	n, labels := int32(replicas), map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.Namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(image)},
		},
	}
	if _, err := a.client.AppsV1().StatefulSets(a.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create stateful set %s: %w", name, err)
	}
	return nil
}

// DeleteStatefulSet deletes a StatefulSet; the garbage collector deletes its Pods.
func (a *Arena) DeleteStatefulSet(ctx context.Context, name string) error {
	background := metav1.DeletePropagationBackground
	if err := a.client.AppsV1().StatefulSets(a.Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		return fmt.Errorf("delete stateful set %s: %w", name, err)
	}
	return nil
}

// ScaleStatefulSet changes the number of a StatefulSet's replicas.
func (a *Arena) ScaleStatefulSet(ctx context.Context, name string, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := a.client.AppsV1().StatefulSets(a.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("scale stateful set %s: %w", name, err)
	}
	return nil
}

// CreateConfigMaps creates n ConfigMaps as fast as the API server accepts them.
func (a *Arena) CreateConfigMaps(ctx context.Context, n int) error {
	return Parallel(64, n, func(i int) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("held-%d", i)}}
		if _, err := a.client.CoreV1().ConfigMaps(a.Namespace).Create(ctx, m, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a config map: %w", err)
		}
		return nil
	})
}

// Complete holds when a Job's status is complete, with that many succeeded Pods.
func Complete(name string, completions int) Condition {
	return Condition{fmt.Sprintf("%s is complete with %d", name, completions), func(v *view) bool {
		job := v.jobs[name]
		if job == nil || int(job.Status.Succeeded) != completions {
			return false
		}
		for _, c := range job.Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
	}}
}

// Told holds when the status of every Deployment has n replicas, ready or not.
func Told(n int) Condition {
	return Condition{fmt.Sprintf("every deployment says that it has %d replicas", n), func(v *view) bool {
		for _, d := range v.deployments {
			if d.Status.ObservedGeneration < d.Generation || int(d.Status.Replicas) != n || int(d.Status.UnavailableReplicas) != n {
				return false
			}
		}
		return len(v.deployments) > 0
	}}
}
