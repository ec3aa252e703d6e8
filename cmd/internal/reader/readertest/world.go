// Package readertest runs the commands that read the record, for tests: on a bus on loopback with
// the record of a shop, or on a bus of the test.
package readertest

import (
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// World is a bus on loopback with the record of a shop, and of the namespaces shop, feat
// and empty.
type World struct {
	*testing.T
	*recordtest.Shop
	Address  string // as the flag
	commands func() []*cobra.Command
}

// NewWorld makes a World on which Millrace runs some commands. It is closed when the test ends.
func NewWorld(t *testing.T, commands func() []*cobra.Command) *World {
	t.Helper()
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	Must(t, err)
	t.Cleanup(func() { Must(t, server.Close()) })
	b, err := stream.Connect(t.Context(), stream.Options{URL: server.URL()})
	Must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	of := append([]kinds.Kind{kinds.Namespaces.Kind}, recordtest.ShopKinds...)
	teller, err := recordtest.New(t.Context(), b, of, []string{recordtest.Deployments, recordtest.ReplicaSets, "disruption-controller"})
	Must(t, err)
	shop, err := recordtest.OpenShop(t.Context(), teller)
	Must(t, err)
	t.Cleanup(func() { Must(t, teller.Close()) })
	w := &World{t, shop, "--nats-url=" + server.URL(), commands}
	for _, namespace := range []string{"shop", "feat", "empty"} {
		w.Record(kinds.Namespaces.Kind, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	w.Record(kinds.ConfigMaps.Kind, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "colours", Labels: map[string]string{"app": "web"}}, Data: map[string]string{"a": "b"}})
	return w
}

// Record records the current state of an object.
func (w *World) Record(kind kinds.Kind, object recordtest.Object) {
	w.Helper()
	Must(w.T, w.Is(w.Context(), kind, object, "kubectl-create"))
}

// PendingPod records a pod of namespace feat that no node has room for.
func (w *World) PendingPod(name string, owners ...metav1.OwnerReference) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: name, OwnerReferences: owners}}
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/10 nodes are available: 10 Insufficient cpu."}}
	w.Record(kinds.Pods.Kind, pod)
}

// Millrace runs a command on the bus, and returns its output.
func (w *World) Millrace(args ...string) (string, error) {
	return Output(w.Context(), w.commands(), append(args, w.Address)...)
}
