package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// observer watches one namespace, independently of whoever works there.
type observer struct {
	stop context.CancelFunc

	mu          sync.Mutex
	changed     chan struct{} // closed and made anew at each change
	last        time.Time     // when the last change arrived
	broken      error
	pods        map[string]*corev1.Pod
	born        int // Pods seen to be created, since the beginning
	deployments map[string]*appsv1.Deployment
}

// observe begins to watch; everything that happens afterwards is seen.
func observe(ctx context.Context, client kubernetes.Interface, namespace string) (*observer, error) {
	ctx, stop := context.WithCancel(ctx)
	o := &observer{
		stop: stop, changed: make(chan struct{}),
		pods: map[string]*corev1.Pod{}, deployments: map[string]*appsv1.Deployment{},
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		o.pods[pods.Items[i].Name] = &pods.Items[i]
	}
	podWatch, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	deployments, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list deployments: %w", err)
	}
	for i := range deployments.Items {
		o.deployments[deployments.Items[i].Name] = &deployments.Items[i]
	}
	deploymentWatch, err := client.AppsV1().Deployments(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: deployments.ResourceVersion})
	if err != nil {
		return nil, fmt.Errorf("watch deployments: %w", err)
	}
	go o.follow(ctx, podWatch)
	go o.follow(ctx, deploymentWatch)
	return o, nil
}

func (o *observer) follow(ctx context.Context, w watch.Interface) {
	for event := range w.ResultChan() {
		o.take(event, time.Now())
	}
	if ctx.Err() == nil {
		o.mu.Lock()
		o.broken = fmt.Errorf("the observer's watch ended")
		o.mu.Unlock()
	}
}

func (o *observer) take(event watch.Event, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch object := event.Object.(type) {
	case *corev1.Pod:
		if event.Type == watch.Added {
			o.born++
		}
		if event.Type == watch.Deleted {
			delete(o.pods, object.Name)
		} else {
			o.pods[object.Name] = object
		}
	case *appsv1.Deployment:
		if event.Type == watch.Deleted {
			delete(o.deployments, object.Name)
		} else {
			o.deployments[object.Name] = object
		}
	default:
		o.broken = fmt.Errorf("the observer's watch ended: %v", event.Object)
	}
	o.last = at
	close(o.changed)
	o.changed = make(chan struct{})
}

// until waits until what is seen is so, and says when the change arrived that
// made it so.
func (o *observer) until(ctx context.Context, what string, so func(*observer) bool) (time.Time, error) {
	for {
		o.mu.Lock()
		holds, at, changed, broken := so(o), o.last, o.changed, o.broken
		o.mu.Unlock()
		if holds {
			return at, nil
		}
		if broken != nil {
			return time.Time{}, broken
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
}

// births is how many Pods were created since the observer began.
func (o *observer) births() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.born
}

// victim is some ready Pod that is not being deleted.
func (o *observer) victim() (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, p := range o.pods {
		if ready(p) {
			return name, true
		}
	}
	return "", false
}

func readyPods(n int) func(*observer) bool {
	return func(o *observer) bool {
		count := 0
		for _, p := range o.pods {
			if ready(p) {
				count++
			}
		}
		return count >= n
	}
}

func bornPods(n int) func(*observer) bool { return func(o *observer) bool { return o.born >= n } }

func noPods(o *observer) bool { return len(o.pods) == 0 }

func available(n int) func(*observer) bool {
	return func(o *observer) bool {
		count := 0
		for _, d := range o.deployments {
			if d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas {
				count++
			}
		}
		return count >= n
	}
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
