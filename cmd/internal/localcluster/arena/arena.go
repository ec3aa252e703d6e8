// Package arena plays users' actions in a namespace, and watches their effects
// independently of Millrace.
//
// A function that waits returns the time at which a change arrived, and not the time at which
// the caller looked.
package arena

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/pkg/events/sleep"
)

// Client opens arenas on one cluster.
type Client struct{ client kubernetes.Interface }

// Connect makes a client from a kubeconfig file, without a limit on requests;
// "" takes $KUBECONFIG or the user's own file.
func Connect(kubeconfig string) (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, -1
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &Client{client}, nil
}

// Arena is one namespace and its view.
type Arena struct {
	*view

	// Namespace is its name.
	Namespace string

	client kubernetes.Interface
	close  context.CancelFunc
}

// Open creates a namespace and begins to watch it. Because Pods need the default service
// account, Open waits for it, or creates it if createAccount says that no controller does.
// Close ends the watches.
func (c *Client) Open(ctx context.Context, name string, createAccount bool) (*Arena, error) {
	if err := c.CreateNamespace(ctx, name); err != nil {
		return nil, err
	}
	if createAccount {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: name}}
		if _, err := c.client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create service account: %w", err)
		}
	} else if err := c.AwaitAccount(ctx, name); err != nil {
		return nil, err
	}
	return c.Watch(ctx, name)
}

// CreateNamespace creates the namespace of an arena, as the first part of Open.
func (c *Client) CreateNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	return nil
}

// Remove deletes a namespace; AwaitGone waits until it is gone.
func (c *Client) Remove(ctx context.Context, namespace string) error {
	if err := c.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete namespace: %w", err)
	}
	return nil
}

// AwaitGone waits until a namespace is gone, which needs namespace-controller.
func (c *Client) AwaitGone(ctx context.Context, namespace string) error {
	for {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if rest := Rest(ctx, 100*time.Millisecond); rest != nil {
			return fmt.Errorf("wait for namespace %s to go: %w", namespace, errors.Join(rest, err))
		}
	}
}

// AwaitAccount waits until a controller has given a namespace its default service
// account.
func (c *Client) AwaitAccount(ctx context.Context, namespace string) error {
	for {
		_, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("get service account: %w", err)
		}
		if Rest(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("wait for the default service account of %s: %w", namespace, ctx.Err())
		}
	}
}

// Watch begins to watch a namespace that is still empty.
func (c *Client) Watch(ctx context.Context, namespace string) (*Arena, error) {
	watching, stop := context.WithCancel(ctx)
	v, err := watchNamespace(watching, c.client, namespace)
	if err != nil {
		stop()
		return nil, err
	}
	return &Arena{view: v, Namespace: namespace, client: c.client, close: stop}, nil
}

// Close ends the watches; the namespace stays.
func (a *Arena) Close() { a.close() }

// Remove deletes the namespace. It does not wait until it is gone, because that needs
// namespace-controller, which may not be running.
func (a *Arena) Remove(ctx context.Context) error {
	return (&Client{a.client}).Remove(ctx, a.Namespace)
}

// Deploy creates a Deployment with one container.
func (a *Arena) Deploy(ctx context.Context, name, image string, replicas int) error {
	return a.create(ctx, deploymentOf(a.Namespace, name, image, replicas))
}

func deploymentOf(namespace, name, image string, replicas int) *appsv1.Deployment {
	n := int32(replicas)
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(image)},
		},
	}
}

func (a *Arena) create(ctx context.Context, d *appsv1.Deployment) error {
	if _, err := a.client.AppsV1().Deployments(a.Namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create deployment %s: %w", d.Name, err)
	}
	return nil
}

func podSpec(image string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}}
}

// Scale changes the number of a Deployment's replicas, and returns the resourceVersion of the
// result.
func (a *Arena) Scale(ctx context.Context, name string, replicas int) (version string, err error) {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	d, err := a.client.AppsV1().Deployments(a.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return "", fmt.Errorf("scale %s: %w", name, err)
	}
	return d.ResourceVersion, nil
}

// SetImage changes the image of a Deployment, as kubectl set image does.
func (a *Arena) SetImage(ctx context.Context, name, image string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "main", "image": image}}}}}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := a.client.AppsV1().Deployments(a.Namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set image of %s: %w", name, err)
	}
	return nil
}

// Undo restores the template of the revision before the current one from its ReplicaSet, as
// kubectl rollout undo does.
func (a *Arena) Undo(ctx context.Context, name string) error {
	d, err := a.client.AppsV1().Deployments(a.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get deployment %s: %w", name, err)
	}
	sets, err := a.client.AppsV1().ReplicaSets(a.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
	if err != nil {
		return fmt.Errorf("list replica sets of %s: %w", name, err)
	}
	previous := before(sets.Items, revision(d.Annotations))
	if previous == nil {
		return fmt.Errorf("undo rollout of %s: no replica set holds an earlier revision than %d", name, revision(d.Annotations))
	}
	template := previous.Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	patch, err := json.Marshal([]any{map[string]any{"op": "replace", "path": "/spec/template", "value": template}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := a.client.AppsV1().Deployments(a.Namespace).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("undo rollout of %s: %w", name, err)
	}
	return nil
}

// before is the ReplicaSet with the largest revision below the given one.
func before(sets []appsv1.ReplicaSet, current int64) *appsv1.ReplicaSet {
	var found *appsv1.ReplicaSet
	for i := range sets {
		r := revision(sets[i].Annotations)
		if r < current && (found == nil || r > revision(found.Annotations)) {
			found = &sets[i]
		}
	}
	return found
}

func revision(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations["deployment.kubernetes.io/revision"], 10, 64)
	if err != nil { // without a revision: 0, the lowest
		return 0
	}
	return n
}

// DeletePod deletes any ready Pod, and returns its name.
func (a *Arena) DeletePod(ctx context.Context) (string, error) {
	name, ok := a.readyPod()
	if !ok {
		return "", errors.New("delete a pod: none is ready")
	}
	if err := a.client.CoreV1().Pods(a.Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return "", fmt.Errorf("delete a pod: %w", err)
	}
	return name, nil
}

// DeleteDeployments deletes every Deployment; the garbage collector deletes their
// dependents.
func (a *Arena) DeleteDeployments(ctx context.Context) error {
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	if err := a.client.AppsV1().Deployments(a.Namespace).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete deployments: %w", err)
	}
	return nil
}

// CreatePods creates n Pods without an owner as fast as the API server accepts them. No
// scheduler schedules them.
func (a *Arena) CreatePods(ctx context.Context, n int) error {
	return Parallel(64, n, func(i int) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("direct-%d", i)}, Spec: podSpec("nginx")}
		p.Spec.SchedulerName = noScheduler
		if _, err := a.client.CoreV1().Pods(a.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a pod: %w", err)
		}
		return nil
	})
}

// DeletePods deletes every Pod at once.
func (a *Arena) DeletePods(ctx context.Context) error {
	now := int64(0)
	if err := a.client.CoreV1().Pods(a.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	return nil
}

// Parallel calls do for 0 to n-1 with some workers, and returns each worker's first error.
func Parallel(workers, n int, do func(int) error) error {
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

// Rest waits, so that the cluster can become quiet.
func Rest(ctx context.Context, d time.Duration) error {
	if !sleep.For(ctx, d) {
		return ctx.Err()
	}
	return nil
}
