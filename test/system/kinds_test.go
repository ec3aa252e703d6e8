package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// mostData and mostNotes are the limits of the API server for a ConfigMap and for the annotations of an
	// object.
	mostData  = 1 << 20
	mostNotes = 256 << 10
)

// TestLargestObjects sends the largest objects that the API server accepts through all of Millrace: each is
// on the bus byte for byte, or marked there as brief, and the controllers process it.
func TestLargestObjects(t *testing.T) {
	s := here(t)
	m := s.run(t, "--redact=configmaps:") // redacts no ConfigMap
	a := s.arena(t, "largest")
	b := connect(t, m.nats)
	owner := s.largestConfigMap(t, b, a.Namespace)
	s.largestCustomObject(t, b, owner)
	s.largestTemplate(t, a)
	clear(t, a)
}

// largestConfigMap is on the bus in full.
func (s *site) largestConfigMap(t *testing.T, b bus.Bus, namespace string) *corev1.ConfigMap {
	t.Helper()
	made, err := s.kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "largest", Annotations: map[string]string{"n": strings.Repeat("n", mostNotes-1)}},
		Data:       map[string]string{"v": strings.Repeat("v", mostData-1)},
	}, metav1.CreateOptions{})
	must(t, err)
	d := told(t, b, events.Is, "configmaps", made.ObjectMeta)
	want := made.DeepCopy()
	want.ManagedFields = nil
	body, err := kinds.Encode(kinds.ConfigMaps.Kind, want)
	must(t, err)
	if d.Form != kinds.Full || !bytes.Equal(d.Body, body) {
		t.Errorf("the bus has %d bytes in form %q, want the %d bytes of the object", len(d.Body), d.Form, len(body))
	}
	return made
}

// largestCustomObject is brief on the bus, and is deleted with its owner.
func (s *site) largestCustomObject(t *testing.T, b bus.Bus, owner *corev1.ConfigMap) {
	t.Helper()
	must(t, s.defineKind(t.Context(), "giant"))
	t.Cleanup(func() { must(t, s.removeKind(context.WithoutCancel(t.Context()), "giant")) })
	giant := customObject("giant", "giant", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
	giant.Object["fields"] = map[string]any{"without": map[string]any{"schema": strings.Repeat("x", 1200<<10)}}
	giants := s.dynamic.Resource(kindResource("giant")).Namespace(owner.Namespace)
	within(t, patience, "a large custom object can be created", func() string {
		_, err := giants.Create(t.Context(), giant, metav1.CreateOptions{})
		return made(err)
	})
	giant, err := giants.Get(t.Context(), "giant", metav1.GetOptions{})
	must(t, err)
	d := told(t, b, events.Is, "giants.churn.millrace.io", metav1.ObjectMeta{
		Namespace: owner.Namespace, Name: "giant", UID: giant.GetUID(), ResourceVersion: giant.GetResourceVersion(),
	})
	if d.Form != kinds.Metadata || len(d.Body) > 4096 {
		t.Errorf("the bus has %d bytes in form %q, want the metadata alone, in the form that says so", len(d.Body), d.Form)
	}
	must(t, s.kube.CoreV1().ConfigMaps(owner.Namespace).Delete(t.Context(), owner.Name, metav1.DeleteOptions{}))
	within(t, patience, "the large object goes with its large owner", func() string {
		_, err := giants.Get(t.Context(), "giant", metav1.GetOptions{})
		return gone(err)
	})
}

// largestTemplate has three pods created from a template that fills most of etcd's limit: it passes through
// turns, and through the requests that carry them out.
func (s *site) largestTemplate(t *testing.T, a *clustertest.Arena) {
	t.Helper()
	value := strings.Repeat("e", 600<<10)
	set := replicaSet("large", 3)
	set.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LARGE", Value: value}}
	_, err := s.kube.AppsV1().Deployments(a.Namespace).Create(t.Context(), deployment(set), metav1.CreateOptions{})
	must(t, err)
	until(t, a, clustertest.RolledOut("large", first, 3))
	pods, err := s.kube.CoreV1().Pods(a.Namespace).List(t.Context(), everything)
	must(t, err)
	for _, p := range pods.Items {
		if p.Spec.Containers[0].Env[0].Value != value {
			t.Errorf("the pod %s has another value in its environment than its template", p.Name)
		}
	}
}

// told waits for the delta of a version of an object.
func told(t *testing.T, b bus.Bus, op events.Op, kind kinds.Name, object metav1.ObjectMeta) (found events.Delta) {
	t.Helper()
	ref := events.Ref{Kind: kind, Namespace: object.Namespace, Name: object.Name}
	within(t, patience, fmt.Sprintf("the bus has %v", ref), func() string {
		m, there, err := b.Last(t.Context(), subject.LogStream(kind), subject.Delta(ref))
		if errors.Is(err, bus.ErrNoStream) || (err == nil && !there) {
			return "it has nothing of it"
		}
		if err != nil {
			return err.Error()
		}
		found, err = events.DecodeDelta(ref, m)
		must(t, err)
		if found.Op != op || found.UID != object.UID || found.ResourceVersion != object.ResourceVersion {
			return fmt.Sprintf("it has %s %s", found.Op, found.ResourceVersion)
		}
		return ""
	})
	return found
}

// TestKindsComeAndGo creates and deletes a hundred custom kinds while Pods are deleted. The garbage collector
// has work in each kind; the Pods are replaced as usual.
func TestKindsComeAndGo(t *testing.T) {
	const many, atOnce = 100, 25
	s := here(t)
	m := s.run(t)
	a := s.arena(t, "churn")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))

	var kinds sync.WaitGroup
	slots, over := make(chan struct{}, atOnce), make(chan struct{})
	for i := range many {
		kinds.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := s.useKind(t.Context(), a.Namespace, fmt.Sprintf("kind%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	go func() { kinds.Wait(); close(over) }()

	var worst time.Duration
	rounds := 0
	for busy := true; busy; rounds++ {
		created, begun := a.Created(), time.Now()
		_, err := a.DeletePod(t.Context())
		must(t, err)
		worst = max(worst, until(t, a, clustertest.Replaced(created, 3)).Sub(begun))
		select {
		case <-over:
			busy = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Logf("of %d pods that were deleted meanwhile, the slowest was ready again after %v", rounds, worst.Round(time.Millisecond))
	if created := a.Created(); created != 3+rounds {
		t.Errorf("%d pods were created to replace, want one for each of the %d that were deleted", created-3, rounds)
	}
	m.ready(t)
	clear(t, a)
}

// useKind creates a kind, waits until the garbage collector has deleted an object of it, and deletes the
// kind.
func (s *site) useKind(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.defineKind(ctx, name); err != nil {
		return err
	}
	objects := s.dynamic.Resource(kindResource(name)).Namespace(namespace)
	absent := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: types.UID("absent-" + name)}
	err := repeat(ctx, "create an object of "+name, func() string {
		_, err := objects.Create(ctx, customObject(name, "orphan", absent), metav1.CreateOptions{})
		return made(err)
	})
	if err == nil {
		err = repeat(ctx, "the orphan of "+name+" is collected", func() string {
			_, err := objects.Get(ctx, "orphan", metav1.GetOptions{})
			return gone(err)
		})
	}
	return errors.Join(err, s.removeKind(context.WithoutCancel(ctx), name))
}

// repeat is within for goroutines other than the test's own.
func repeat(ctx context.Context, what string, holds func() (missing string)) error {
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		missing := holds()
		if missing == "" {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("not in time: %s: %s", what, missing)
		}
	}
}

const churn = "churn.millrace.io"

func kindResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: churn, Version: "v1", Resource: name + "s"}
}

func customObject(kind, name string, owner metav1.OwnerReference) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": churn + "/v1", "kind": kind}}
	o.SetName(name)
	o.SetOwnerReferences([]metav1.OwnerReference{owner})
	return o
}

// defineKind creates a custom kind that accepts any field.
func (s *site) defineKind(ctx context.Context, name string) error {
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name + "s." + churn},
		"spec": map[string]any{
			"group": churn, "scope": "Namespaced",
			"names": map[string]any{"plural": name + "s", "singular": name, "kind": name, "listKind": name + "List"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	_, err := s.dynamic.Resource(definitionsResource).Create(ctx, definition, metav1.CreateOptions{})
	return err
}

func (s *site) removeKind(ctx context.Context, name string) error {
	return s.dynamic.Resource(definitionsResource).Delete(ctx, name+"s."+churn, metav1.DeleteOptions{})
}
