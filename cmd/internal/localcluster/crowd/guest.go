package crowd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stay is the average time that a guest uses a namespace.
const stay = 10 * time.Second

// comeAndGo creates namespaces, works in them, and removes them, one after the
// other.
func (c *Crowd) comeAndGo(ctx, working context.Context) {
	r := rand.New(rand.NewPCG(c.options.Seed, 0))
	for i := 1; ; i++ {
		name := fmt.Sprintf("guest-%d", i)
		if !insist(working, func(ctx context.Context) error { return makeNamespace(ctx, c.client, name) }) {
			return
		}
		c.count("make a namespace", nil)
		object := newDeployment(name, "web", r.IntN(images), 1+r.Int32N(3))
		if !insist(working, func(ctx context.Context) error {
			_, err := c.client.AppsV1().Deployments(name).Create(ctx, object, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}) {
			return
		}
		if !rest(working, r, stay) {
			return
		}
		// Retried until it succeeds, so that no namespace stays half deleted.
		if insist(ctx, func(ctx context.Context) error { return c.leave(ctx, name) }) {
			c.count("remove a namespace", nil)
		}
	}
}

// leave removes a namespace and everything in it, as namespace-controller would: it
// deletes the contents, and finalizes the namespace when nothing is left.
func (c *Crowd) leave(ctx context.Context, name string) error {
	namespace, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	if namespace.DeletionTimestamp == nil {
		if err := c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if namespace, err = c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	if err := c.empty(ctx, name); err != nil {
		return err
	}
	namespace.Spec.Finalizers = []corev1.FinalizerName{}
	_, err = c.client.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// empty deletes everything in a namespace, and returns nil once nothing is left.
func (c *Crowd) empty(ctx context.Context, name string) error {
	all := metav1.ListOptions{}
	for what, drop := range map[string]func() error{
		"events": func() error { return c.client.CoreV1().Events(name).DeleteCollection(ctx, metav1.DeleteOptions{}, all) },
		"configmaps": func() error {
			return c.client.CoreV1().ConfigMaps(name).DeleteCollection(ctx, metav1.DeleteOptions{}, all)
		},
		"accounts": func() error {
			return c.client.CoreV1().ServiceAccounts(name).DeleteCollection(ctx, metav1.DeleteOptions{}, all)
		},
	} {
		if err := drop(); err != nil {
			return fmt.Errorf("delete %s of %s: %w", what, name, err)
		}
	}
	pods, err := c.client.CoreV1().Pods(name).List(ctx, all)
	if err != nil {
		return err
	}
	sets, err := c.client.AppsV1().ReplicaSets(name).List(ctx, all)
	if err != nil {
		return err
	}
	deployments, err := c.client.AppsV1().Deployments(name).List(ctx, all)
	if err != nil {
		return err
	}
	// One by one, so that the audit log names each deleted object.
	background := metav1.DeletePropagationBackground
	how := metav1.DeleteOptions{PropagationPolicy: &background}
	var errs []error
	for i := range deployments.Items {
		errs = append(errs, c.client.AppsV1().Deployments(name).Delete(ctx, deployments.Items[i].Name, how))
	}
	for i := range sets.Items {
		errs = append(errs, c.client.AppsV1().ReplicaSets(name).Delete(ctx, sets.Items[i].Name, how))
	}
	for i := range pods.Items {
		errs = append(errs, c.client.CoreV1().Pods(name).Delete(ctx, pods.Items[i].Name, how))
	}
	for _, err := range errs {
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("empty %s: %w", name, err)
		}
	}
	if left := len(pods.Items) + len(sets.Items) + len(deployments.Items); left > 0 {
		return fmt.Errorf("empty %s: %d objects are left", name, left)
	}
	return nil
}
