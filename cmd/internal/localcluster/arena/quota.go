package arena

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// quota is the name of the ResourceQuota.
	quota = "pods"
	// poll is the interval at which Quota looks whether it is enforced.
	poll = 50 * time.Millisecond
)

// Quota bounds the pods of the namespace, and returns when the API server enforces the bound.
func (a *Arena) Quota(ctx context.Context, pods int) error {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: quota}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(pods), resource.DecimalSI)}
	if _, err := a.client.CoreV1().ResourceQuotas(a.Namespace).Create(ctx, q, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a quota: %w", err)
	}
	for {
		q, err := a.client.CoreV1().ResourceQuotas(a.Namespace).Get(ctx, quota, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the quota: %w", err)
		}
		if _, counted := q.Status.Used[corev1.ResourcePods]; counted {
			return nil
		}
		if err := Rest(ctx, poll); err != nil {
			return err
		}
	}
}

// RemoveQuota removes the bound of [Arena.Quota].
func (a *Arena) RemoveQuota(ctx context.Context) error {
	if err := a.client.CoreV1().ResourceQuotas(a.Namespace).Delete(ctx, quota, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the quota: %w", err)
	}
	return nil
}

// NewestPod is the name of the pod that was created last.
func (a *Arena) NewestPod(ctx context.Context) (string, error) {
	pods, err := a.client.CoreV1().Pods(a.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return "", errors.New("find the newest pod: there is none")
	}
	return slices.MaxFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) }).Name, nil
}
