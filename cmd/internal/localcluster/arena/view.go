package arena

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// view is the observed state of the namespace.
type view struct {
	notice
	created     int // Pods created since the view began
	most        int // see Most
	pods        map[string]*corev1.Pod
	deployments map[string]*appsv1.Deployment
	jobs        map[string]*batchv1.Job
	sets        map[string]int // spec.replicas of each ReplicaSet
}

func newView() *view {
	return &view{
		notice: newNotice(),
		pods:   map[string]*corev1.Pod{}, deployments: map[string]*appsv1.Deployment{}, jobs: map[string]*batchv1.Job{}, sets: map[string]int{},
	}
}

// watchNamespace begins to watch a namespace that is still empty; the view receives
// everything that happens in it from now on.
func watchNamespace(ctx context.Context, client kubernetes.Interface, namespace string) (*view, error) {
	v := newView()
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for _, open := range []opener{
		func(from metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(namespace).Watch(ctx, from)
		},
		func(from metav1.ListOptions) (watch.Interface, error) {
			return client.AppsV1().Deployments(namespace).Watch(ctx, from)
		},
		func(from metav1.ListOptions) (watch.Interface, error) {
			return client.AppsV1().ReplicaSets(namespace).Watch(ctx, from)
		},
		func(from metav1.ListOptions) (watch.Interface, error) {
			return client.BatchV1().Jobs(namespace).Watch(ctx, from)
		},
	} {
		w, err := open(since(pods.ResourceVersion))
		if err != nil {
			return nil, fmt.Errorf("watch namespace %s: %w", namespace, err)
		}
		go v.follow(ctx, open, w, pods.ResourceVersion, v.take)
	}
	return v, nil
}

// take applies an event; notice.mu is held.
func (v *view) take(event watch.Event) error {
	gone := event.Type == watch.Deleted
	switch object := event.Object.(type) {
	case *corev1.Pod:
		if event.Type == watch.Added {
			v.created++
		}
		if v.pods[object.Name] = object; gone {
			delete(v.pods, object.Name)
		}
		v.most = max(v.most, v.siblings(object))
	case *appsv1.Deployment:
		if v.deployments[object.Name] = object; gone {
			delete(v.deployments, object.Name)
		}
	case *batchv1.Job:
		if v.jobs[object.Name] = object; gone {
			delete(v.jobs, object.Name)
		}
	case *appsv1.ReplicaSet:
		if v.sets[object.Name] = asked(object); gone {
			delete(v.sets, object.Name)
		}
		v.most = max(v.most, total(v.sets))
	default:
		return fmt.Errorf("%w: %v", errBroken, event.Object)
	}
	return nil
}

// siblings counts the Pods with the same owner that have not finished and are not being deleted.
func (v *view) siblings(of *corev1.Pod) int {
	n, owner := 0, ownerOf(of)
	for _, p := range v.pods {
		if staying(p) && ownerOf(p) == owner {
			n++
		}
	}
	return n
}

func ownerOf(p *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		return owner.UID
	}
	return ""
}

func asked(set *appsv1.ReplicaSet) int { return int(ptr.Deref(set.Spec.Replicas, 1)) }

func total(of map[string]int) int {
	sum := 0
	for _, n := range of {
		sum += n
	}
	return sum
}

// Condition is a condition on a view.
type Condition struct {
	text string
	so   func(*view) bool
}

// String is the condition in words.
func (c Condition) String() string { return c.text }

// Until waits until a condition holds, and returns when the change that fulfilled it
// arrived.
func (v *view) Until(ctx context.Context, c Condition) (time.Time, error) {
	return v.until(ctx, c, func() bool { return c.so(v) })
}

// Created is how many Pods were created since the view began.
func (v *view) Created() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.created
}

// Most is the largest number of Pods, at any time since the view began, that all
// ReplicaSets together requested, or that one of them had, without Pods that have finished
// or are being deleted. It does not add up the Pods of several ReplicaSets: each removes and
// creates Pods in turns of its own, so that for a moment there may be more than the Deployment
// requests. Upstream: the e2e tests of rollouts count what the ReplicaSets request, too.
func (v *view) Most() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.most
}

// readyPod is any ready Pod that is not being deleted.
func (v *view) readyPod() (string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, p := range v.pods {
		if ready(p) {
			return name, true
		}
	}
	return "", false
}

// Ready holds when n Pods are ready and not being deleted.
func Ready(n int) Condition {
	return Condition{fmt.Sprintf("%d pods are ready", n), func(v *view) bool { return v.count(ready) >= n }}
}

// Created holds when n Pods have been created since the beginning.
func Created(n int) Condition {
	return Condition{fmt.Sprintf("%d pods have been created", n), func(v *view) bool { return v.created >= n }}
}

// Replaced holds when more than before Pods have been created, and n are ready.
func Replaced(before, n int) Condition {
	return Condition{fmt.Sprintf("another was created, and %d pods are ready", n), func(v *view) bool {
		return v.created > before && v.count(ready) >= n
	}}
}

// Available holds when the status of n Deployments, for their newest generation, has every
// replica available.
func Available(n int) Condition {
	return Condition{fmt.Sprintf("%d deployments are available", n), func(v *view) bool {
		count := 0
		for _, d := range v.deployments {
			if d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas {
				count++
			}
		}
		return count >= n
	}}
}

// RolledOut holds when a Deployment reports its newest template as rolled out, and
// the only Pods are n ready ones with the given image.
func RolledOut(name, image string, n int) Condition {
	return Condition{fmt.Sprintf("%s runs %d pods of %s and no others", name, n, image), func(v *view) bool {
		d := v.deployments[name]
		return d != nil && d.Status.ObservedGeneration >= d.Generation && d.Spec.Template.Spec.Containers[0].Image == image &&
			d.Status.UpdatedReplicas == int32(n) && d.Status.AvailableReplicas == int32(n) && d.Status.Replicas == int32(n) &&
			len(v.pods) == n && v.count(func(p *corev1.Pod) bool { return ready(p) && p.Spec.Containers[0].Image == image }) == n
	}}
}

// NoPods holds when no Pod is left.
func NoPods() Condition {
	return Condition{"no pod is left", func(v *view) bool { return len(v.pods) == 0 }}
}

// Empty holds when no Deployment, ReplicaSet or Pod is left.
func Empty() Condition {
	return Condition{"no deployment, replica set or pod is left", func(v *view) bool {
		return len(v.deployments)+len(v.sets)+len(v.pods) == 0
	}}
}

func (v *view) count(has func(*corev1.Pod) bool) int {
	n := 0
	for _, p := range v.pods {
		if has(p) {
			n++
		}
	}
	return n
}

func staying(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func ready(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
