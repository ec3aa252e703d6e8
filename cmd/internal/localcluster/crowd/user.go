package crowd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

const (
	// mostDeployments and mostReplicas bound the objects of a user at a time.
	mostDeployments = 3
	mostReplicas    = 6
	images          = 5
)

// user is a simulated user in a namespace of its own.
type user struct {
	crowd       *Crowd
	namespace   string
	rand        *rand.Rand
	deployments map[string]*deployment
	made        int
}

// deployment is what a user remembers about a Deployment.
type deployment struct{ image int }

// action is an action of a user, with its relative frequency.
type action struct {
	share int
	name  string
	any   bool // needs no Deployment
	do    func(*user, context.Context, string) error
}

var actions = []action{
	{4, "create", true, (*user).create},
	{8, "scale", false, (*user).scale},
	{6, "roll", false, (*user).roll},
	{2, "roll back", false, (*user).rollBack},
	{10, "delete a pod", false, (*user).deletePod},
	{2, "delete", false, (*user).delete},
	{1, "delete in the foreground", false, (*user).deleteForeground},
	{1, "orphan and adopt", false, (*user).orphan},
}

// live does one action after the other until working ends. It finishes an action that has
// begun unless ctx ends.
func (u *user) live(ctx, working context.Context) {
	if !insist(working, u.settleIn) {
		return
	}
	for rest(working, u.rand, u.crowd.options.Pause) {
		what, name := u.choose()
		err := what.do(u, ctx, name)
		u.crowd.count(what.name, err)
	}
}

// choose draws an action, and a Deployment for it.
func (u *user) choose() (action, string) {
	names := slices.Sorted(maps.Keys(u.deployments))
	if len(names) == 0 {
		return actions[0], ""
	}
	total := 0
	for _, a := range actions {
		total += a.share
	}
	drawn := u.rand.IntN(total)
	i := 0
	for drawn >= actions[i].share {
		drawn -= actions[i].share
		i++
	}
	if actions[i].any && len(names) >= mostDeployments {
		i++ // enough of them: scale one
	}
	return actions[i], names[u.rand.IntN(len(names))]
}

// settleIn creates the user's namespace, and waits until pods can be created in it.
func (u *user) settleIn(ctx context.Context) error {
	return makeNamespace(ctx, u.crowd.client, u.namespace)
}

func makeNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
	return err
}

func (u *user) create(ctx context.Context, _ string) error {
	u.made++
	return u.createNamed(ctx, fmt.Sprintf("web-%d", u.made))
}

func (u *user) createNamed(ctx context.Context, name string) error {
	d := &deployment{image: u.rand.IntN(images)}
	object := newDeployment(u.namespace, name, d.image, 1+u.rand.Int32N(mostReplicas))
	// Some have a surge of 1 or 2 and no unavailable pods, the others the default strategy.
	if surge := intstr.FromInt32(u.rand.Int32N(3)); surge.IntVal > 0 {
		none := intstr.FromInt32(0)
		object.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &none}
	}
	_, err := u.crowd.client.AppsV1().Deployments(u.namespace).Create(ctx, object, metav1.CreateOptions{})
	if err == nil || !apierrors.IsAlreadyExists(err) && apierrors.ReasonForError(err) == "" {
		u.deployments[name] = d // it may exist even if the response was lost
	}
	return err
}

func newDeployment(namespace, name string, image int, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: imageOf(image)}}},
			},
		},
	}
}

func imageOf(n int) string { return fmt.Sprintf("nginx:1.%d", n) }

func (u *user) patch(ctx context.Context, name string, kind types.PatchType, patch any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = u.crowd.client.AppsV1().Deployments(u.namespace).Patch(ctx, name, kind, body, metav1.PatchOptions{})
	u.missed(name, err)
	return err
}

// missed forgets a Deployment that turns out not to exist.
func (u *user) missed(name string, err error) {
	if apierrors.IsNotFound(err) {
		delete(u.deployments, name)
	}
}

func (u *user) scale(ctx context.Context, name string) error {
	return u.patch(ctx, name, types.MergePatchType, map[string]any{"spec": map[string]any{"replicas": u.rand.IntN(mostReplicas + 1)}})
}

func (u *user) roll(ctx context.Context, name string) error {
	d := u.deployments[name]
	d.image = (d.image + 1 + u.rand.IntN(images-1)) % images
	return u.patch(ctx, name, types.StrategicMergePatchType, map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "main", "image": imageOf(d.image)}}}}}})
}

var errNothing = errors.New("there is nothing to do it to")

// rollBack takes the template of some other ReplicaSet of the Deployment.
func (u *user) rollBack(ctx context.Context, name string) error {
	sets, err := u.crowd.client.AppsV1().ReplicaSets(u.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return err
	}
	if len(sets.Items) < 2 {
		return errNothing
	}
	slices.SortFunc(sets.Items, func(a, b appsv1.ReplicaSet) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	template := sets.Items[u.rand.IntN(len(sets.Items)-1)].Spec.Template
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return u.patch(ctx, name, types.JSONPatchType, []any{map[string]any{"op": "replace", "path": "/spec/template", "value": template}})
}

func (u *user) deletePod(ctx context.Context, name string) error {
	pods, err := u.crowd.client.CoreV1().Pods(u.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return errNothing
	}
	victim := pods.Items[u.rand.IntN(len(pods.Items))]
	return u.crowd.client.CoreV1().Pods(u.namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
}

func (u *user) remove(ctx context.Context, name string, policy metav1.DeletionPropagation) error {
	err := u.crowd.client.AppsV1().Deployments(u.namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err == nil {
		delete(u.deployments, name)
	}
	u.missed(name, err)
	return err
}

func (u *user) delete(ctx context.Context, name string) error {
	return u.remove(ctx, name, metav1.DeletePropagationBackground)
}

func (u *user) deleteForeground(ctx context.Context, name string) error {
	return u.remove(ctx, name, metav1.DeletePropagationForeground)
}

// orphan deletes a Deployment without its ReplicaSets; a new one with the same name
// adopts them.
func (u *user) orphan(ctx context.Context, name string) error {
	if err := u.remove(ctx, name, metav1.DeletePropagationOrphan); err != nil {
		return err
	}
	insist(ctx, func(ctx context.Context) error {
		err := u.createNamed(ctx, name)
		if u.deployments[name] != nil {
			return nil
		}
		return err // the deletion of the old one may take a while
	})
	return nil
}
