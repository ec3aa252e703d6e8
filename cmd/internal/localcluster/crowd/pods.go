package crowd

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/sleep"
)

// somePod is a random pod of one of the worker's objects.
func (w *worker) somePod(ctx context.Context) (*corev1.Pod, error) {
	t, ok := w.some(thing.runs)
	if !ok {
		return nil, errNothing
	}
	pods, err := w.crowd.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + t.name})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) == 0 {
		return nil, errNothing
	}
	return &pods.Items[w.rand.IntN(len(pods.Items))], nil
}

func (w *worker) deletePod(ctx context.Context) error {
	pod, err := w.somePod(ctx)
	if err != nil {
		return err
	}
	return w.crowd.client.CoreV1().Pods(w.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
}

// evict evicts a pod, as a drain does; a budget may refuse.
func (w *worker) evict(ctx context.Context) error {
	pod, err := w.somePod(ctx)
	if err != nil {
		return err
	}
	return w.crowd.client.CoreV1().Pods(w.namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
}

const quota = "pods"

// limit sets a quota that is reached soon or at once.
func (w *worker) limit(ctx context.Context) error {
	most := resource.NewQuantity(int64(4+w.rand.IntN(6)), resource.DecimalSI)
	_, err := w.crowd.client.CoreV1().ResourceQuotas(w.namespace).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: w.meta(quota), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: *most}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return errNothing
	}
	return err
}

func (w *worker) lift(ctx context.Context) error {
	err := w.crowd.client.CoreV1().ResourceQuotas(w.namespace).Delete(ctx, quota, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// endRuns suspends CronJobs, so that they start no Jobs, and resumes suspended Jobs.
func (w *worker) endRuns(ctx context.Context) error {
	crons, err := w.crowd.client.BatchV1().CronJobs(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range crons.Items {
		if _, err := w.crowd.client.BatchV1().CronJobs(w.namespace).Patch(ctx, c.Name, types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{}); err != nil && !isGone(err) {
			return err
		}
	}
	jobs, err := w.crowd.client.BatchV1().Jobs(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, j := range jobs.Items {
		if j.Spec.Suspend == nil || !*j.Spec.Suspend {
			continue
		}
		if _, err := w.crowd.client.BatchV1().Jobs(w.namespace).Patch(ctx, j.Name, types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

// Bind binds each new claim to a volume, as persistentvolume-binder-controller would, until the
// context ends: the pods of StatefulSets wait for it.
func (c *Crowd) Bind(ctx context.Context) {
	for sleep.For(ctx, c.options.Pause/4) {
		claims, err := c.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range claims.Items {
			if claim := &claims.Items[i]; claim.Status.Phase != corev1.ClaimBound && claim.DeletionTimestamp == nil {
				_ = c.bindOne(ctx, claim) // retried in the next round
			}
		}
	}
}

func (c *Crowd) bindOne(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := "volume-" + string(claim.UID)
	if claim.Spec.VolumeName == "" {
		_, err := c.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes,
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/" + name}},
				ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		claim.Spec.VolumeName = name
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
		if claim, err = c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests}
	_, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}
