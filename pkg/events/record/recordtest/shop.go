package recordtest

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// The controllers of a shop.
const (
	Deployments = "deployment-controller"
	ReplicaSets = "replicaset-controller"
)

// Secrets are on the bus as their metadata alone.
var Secrets = kinds.Kind{Name: "secrets", Version: "v1", Kind: "Secret", Namespaced: true, Form: kinds.Metadata}

// ShopKinds are the kinds of a shop.
var ShopKinds = []kinds.Kind{kinds.ConfigMaps.Kind, kinds.Deployments.Kind, kinds.Nodes.Kind, kinds.Pods.Kind, kinds.ReplicaSets.Kind, Secrets}

// Shop is a namespace in which a Deployment "web" is created, gets a ReplicaSet
// "web-1" and Pods of it, and is scaled from one to two, after which the watcher of
// Pods was away for a while.
type Shop struct {
	*Teller
	Web *appsv1.Deployment
	Set *appsv1.ReplicaSet

	pods int    // number of pods created
	said uint64 // sequence of the ReplicaSet's last delta
}

// OpenShop writes the record of a shop in namespace "shop".
func OpenShop(ctx context.Context, t *Teller) (*Shop, error) {
	s := &Shop{Teller: t, Web: &appsv1.Deployment{ObjectMeta: meta("web")}, Set: &appsv1.ReplicaSet{ObjectMeta: meta("web-1")}}
	s.Set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "owner"}}
	for _, step := range []func(context.Context) error{
		s.configure, func(ctx context.Context) error { return s.Scale(ctx, "kubectl-create", 1) }, s.AddPod,
		func(ctx context.Context) error { return s.Scale(ctx, "kubectl-scale", 2) }, s.AddPod,
		func(ctx context.Context) error {
			return t.Gap(ctx, "pods", "the watcher was away", time.Now().Add(-time.Second))
		},
	} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("open a shop: %w", err)
		}
	}
	return s, nil
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }

func (s *Shop) configure(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := s.Is(ctx, kinds.Nodes.Kind, node, "kubelet"); err != nil {
		return err
	}
	return s.Is(ctx, kinds.ConfigMaps.Kind, &corev1.ConfigMap{ObjectMeta: meta("flags"), Data: map[string]string{"dark": "on"}}, "kubectl-create")
}

// Is publishes an object as a client has written it.
func (s *Shop) Is(ctx context.Context, kind kinds.Kind, object Object, by string) error {
	d, err := s.Write(kind, object, by)
	if err != nil {
		return err
	}
	_, err = s.Say(ctx, d)
	return err
}

// Scale makes a client write the Deployment, and the controller its ReplicaSet.
func (s *Shop) Scale(ctx context.Context, by string, n int32) error {
	s.Web.Generation++
	s.Web.Spec.Replicas = &n
	web, err := s.Write(kinds.Deployments.Kind, s.Web, by)
	if err != nil {
		return err
	}
	said, err := s.Say(ctx, web)
	if err != nil {
		return err
	}
	verb, because := events.VerbPatch, "as many as are wanted"
	if s.Set.UID == "" {
		verb, because = events.VerbCreate, "no ReplicaSet matches the pod template"
	}
	turn, err := s.Decide(ctx, Deployments, events.LaneWrite, web, because, []events.Command{{Verb: verb, Kind: "replicasets.apps", Namespace: "shop", Name: "web-1"}}, Trigger(web, said))
	if err != nil {
		return err
	}
	s.Set.Generation++
	s.Set.Spec.Replicas = &n
	set, err := s.Write(kinds.ReplicaSets.Kind, s.Set, events.FieldManager)
	if err != nil {
		return err
	}
	if s.said, err = s.Say(ctx, set); err != nil {
		return err
	}
	return s.Done(ctx, Deployments, events.LaneWrite, web, turn, set)
}

// AddPod makes the ReplicaSet's controller create another Pod, which then runs.
func (s *Shop) AddPod(ctx context.Context) error {
	s.pods++
	pod := &corev1.Pod{ObjectMeta: meta(fmt.Sprintf("web-1-%d", s.pods)), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx:1.28"}}}}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: s.Set.UID}}
	set := s.set()
	turn, err := s.Decide(ctx, ReplicaSets, events.LaneWrite, set, "too few pods", []events.Command{{Verb: events.VerbCreate, Kind: "pods", Namespace: "shop", Name: pod.Name}}, Trigger(set, s.said))
	if err != nil {
		return err
	}
	created, err := s.Write(kinds.Pods.Kind, pod, events.FieldManager)
	if err != nil {
		return err
	}
	if _, err := s.Say(ctx, created); err != nil {
		return err
	}
	if err := s.Done(ctx, ReplicaSets, events.LaneWrite, set, turn, created); err != nil {
		return err
	}
	pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return s.Is(ctx, kinds.Pods.Kind, pod, "kubelet")
}

// set is the ReplicaSet's last delta, without a body.
func (s *Shop) set() events.Delta {
	return events.Delta{
		Kind: "replicasets.apps", Ref: events.Ref{Kind: "replicasets.apps", Namespace: "shop", Name: "web-1"}, UID: s.Set.UID,
		ResourceVersion: s.Set.ResourceVersion, Generation: s.Set.Generation,
	}
}

// Crowd creates n Pods in namespace "crowd".
func (s *Shop) Crowd(ctx context.Context, n int) error {
	for i := range n {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "crowd", Name: fmt.Sprintf("pod-%05d", i)}}
		pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodRunning
		d, err := s.Write(kinds.Pods.Kind, pod, "kubelet")
		if err != nil {
			return err
		}
		if _, err := s.Append(ctx, d); err != nil {
			return err
		}
	}
	return s.Flush(ctx, "pods")
}
