package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/cmd/internal/localcluster"
)

// patience bounds every wait: what takes longer has not happened.
const patience = 10 * time.Minute

// field is the cluster on which a contender works.
type field struct {
	cluster *localcluster.Cluster
	client  kubernetes.Interface
	who     contender

	units      []unit
	way        string // how the units were started
	namespaces int
}

func newField(_ context.Context, cluster *localcluster.Cluster, who contender) (*field, error) {
	config, err := cluster.Config()
	if err != nil {
		return nil, err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &field{cluster: cluster, client: client, who: who}, nil
}

// alone makes sure that the contender runs once; paired that it runs twice. Both
// return when it has shown that it works.
func (f *field) alone(ctx context.Context) error  { return f.staff(ctx, "alone", f.who.alone) }
func (f *field) paired(ctx context.Context) error { return f.staff(ctx, "paired", f.who.paired) }

func (f *field) staff(ctx context.Context, way string, start func(context.Context, *localcluster.Cluster) ([]unit, error)) error {
	if f.way == way {
		return nil
	}
	if err := f.dismiss(); err != nil {
		return err
	}
	units, err := start(ctx, f.cluster)
	if err != nil {
		return err
	}
	f.units, f.way = units, way
	return f.warm(ctx)
}

// dismiss stops the contender.
func (f *field) dismiss() error {
	units := f.units
	f.units, f.way = nil, ""
	return end(units)
}

// warm has every controller do something once, so that start-up is not measured:
// a namespace gets its account, a Deployment its Pod, and all of it is collected.
func (f *field) warm(ctx context.Context) error {
	a, err := f.newArena(ctx)
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	if err := a.deploy(ctx, "warm", 1); err != nil {
		return err
	}
	if _, err := a.until(ctx, "the first pod is ready", readyPods(1)); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return a.clear(ctx)
}

// arena is a namespace in which one scenario plays, and its observer.
type arena struct {
	*observer
	namespace string
	client    kubernetes.Interface
	cancel    context.CancelFunc
}

// newArena makes a namespace and waits until the contender has given it an
// account, without which no Pod can be created.
func (f *field) newArena(ctx context.Context) (*arena, error) {
	f.namespaces++
	name := fmt.Sprintf("bench-%d", f.namespaces)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := f.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	if f.units == nil { // nobody else would
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: name}}
		if _, err := f.client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
			cancel()
			return nil, fmt.Errorf("create service account: %w", err)
		}
	} else if err := f.awaitAccount(ctx, name); err != nil {
		cancel()
		return nil, err
	}
	o, err := observe(ctx, f.client, name)
	if err != nil {
		cancel()
		return nil, err
	}
	return &arena{observer: o, namespace: name, client: f.client, cancel: cancel}, nil
}

func (f *field) awaitAccount(ctx context.Context, namespace string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := f.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get service account: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the default service account of %s: %w", namespace, ctx.Err())
		}
	}
}

// deploy creates a Deployment.
func (a *arena) deploy(ctx context.Context, name string, replicas int) error {
	n := int32(replicas)
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
	if _, err := a.client.AppsV1().Deployments(a.namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create deployment %s: %w", name, err)
	}
	return nil
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}
}

// direct creates Pods of nobody, as fast as the API server takes them; no
// scheduler looks at them.
func (a *arena) direct(ctx context.Context, n int) error {
	return parallel(64, n, func(i int) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("direct-%d", i)}, Spec: podSpec()}
		p.Spec.SchedulerName = "nobody"
		_, err := a.client.CoreV1().Pods(a.namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
}

// clear deletes everything in the namespace, waits until it is gone, and ends the
// observer.
func (a *arena) clear(ctx context.Context) error {
	defer a.cancel()
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	if err := a.client.AppsV1().Deployments(a.namespace).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete deployments: %w", err)
	}
	_, err := a.until(ctx, "every pod is gone", noPods)
	return err
}

// parallel does n things, some at a time.
func parallel(workers, n int, do func(int) error) error {
	work := make(chan int)
	errs := make([]error, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range work {
				if err := do(i); err != nil && errs[w] == nil {
					errs[w] = err
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
	return errors.Join(errs...)
}
