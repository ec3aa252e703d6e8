package crowd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/millrace/millrace/pkg/events/eventually"
)

func account(namespace string) runtime.Object {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}}
}

func running(namespace string, n int) *corev1.Pod {
	name := fmt.Sprint("p-", n)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name)}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// TestProbe: the probe deletes a pod when all are running, and the sample ends with the create of
// its replacement.
func TestProbe(t *testing.T) {
	client := fake.NewClientset(account("probe"), running("probe", 1), running("probe", 2), running("probe", 3))
	p := &Probe{
		client: client, namespace: "probe", soon: make(chan struct{}, 1), changed: make(chan struct{}),
		pods: map[types.UID]*corev1.Pod{}, created: map[types.UID]time.Time{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.Run(ctx, time.Hour); close(ended) }()
	pods := client.CoreV1().Pods("probe")
	for n := 4; n < 6; n++ {
		eventually.True(t, eventually.Long, "a pod is deleted", func() bool {
			list, err := pods.List(ctx, metav1.ListOptions{})
			return err == nil && len(list.Items) == probed-1
		})
		if len(p.Samples()) != n-4 {
			t.Errorf("%d samples before pod %d is created", len(p.Samples()), n)
		}
		if _, err := pods.Create(ctx, running("probe", n), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, eventually.Long, "a sample", func() bool { return len(p.Samples()) == n-3 })
		p.Soon()
	}
	for _, s := range p.Samples() {
		if s.Took() <= 0 {
			t.Errorf("the place was empty for %v", s.Took())
		}
	}
	// A sample that is open when the measurement ends counts as well.
	eventually.True(t, eventually.Long, "a third pod is deleted", func() bool {
		list, err := pods.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == probed-1
	})
	cancel()
	<-ended
	if all := p.Samples(); len(all) != 3 || !all[2].Open || all[2].Took() <= 0 {
		t.Errorf("the samples are %+v, want one that is open", all)
	}
}

// TestLeave: leave empties a namespace before it finalizes it.
func TestLeave(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "guest"}, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}
	client := fake.NewClientset(namespace, account("guest"), running("guest", 1))
	now := metav1.Now()
	namespace.DeletionTimestamp = &now // the fake would remove it at once
	if _, err := client.CoreV1().Namespaces().Update(t.Context(), namespace, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := &Crowd{client: client, done: map[string]int{}, failed: map[string]int{}}
	finalized := func() bool {
		return slices.ContainsFunc(client.Actions(), func(a clienttesting.Action) bool { return a.GetSubresource() == "finalize" })
	}
	if err := c.leave(t.Context(), "guest"); err == nil || finalized() { // it has asked the pod to go
		t.Errorf("it was let go with a pod in it: %v", err)
	}
	if err := c.leave(t.Context(), "guest"); err != nil || !finalized() {
		t.Errorf("it was not let go: %v, %v", err, client.Actions())
	}
}

// TestChoose: a user without a Deployment creates one, and a user with enough of them creates no
// more.
func TestChoose(t *testing.T) {
	u := &user{rand: rand.New(rand.NewPCG(1, 1)), deployments: map[string]*deployment{}}
	if a, name := u.choose(); a.name != "create" || name != "" {
		t.Errorf("the first thing is to %s %q", a.name, name)
	}
	for i := range mostDeployments {
		u.deployments[fmt.Sprint("d", i)] = &deployment{}
	}
	seen := map[string]bool{}
	for range 500 {
		a, name := u.choose()
		seen[a.name] = true
		if u.deployments[name] == nil {
			t.Fatalf("%s of %q, which is not there", a.name, name)
		}
	}
	if seen["create"] || len(seen) != len(actions)-1 {
		t.Errorf("drawn were %v", seen)
	}
}

func TestReason(t *testing.T) {
	for want, err := range map[string]error{
		"NotFound":    apierrors.NewNotFound(corev1.Resource("pods"), "p"),
		"Interrupted": fmt.Errorf("ask: %w", context.DeadlineExceeded),
		"Unreachable": errors.New("connection refused"),
	} {
		if got := reason(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}
