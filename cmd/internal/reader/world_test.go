package reader

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/stream"
)

// world is a bus on loopback with the record of a shop, and of the namespaces shop, feat
// and empty.
type world struct {
	*testing.T
	*recordtest.Shop
	address string // as the flag
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	b, err := stream.Connect(t.Context(), stream.Options{URL: server.URL()})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	of := append([]kinds.Kind{kinds.Namespaces.Kind}, recordtest.ShopKinds...)
	teller, err := recordtest.New(t.Context(), b, of, []string{recordtest.Deployments, recordtest.ReplicaSets, "disruption-controller"})
	must(t, err)
	shop, err := recordtest.OpenShop(t.Context(), teller)
	must(t, err)
	t.Cleanup(func() { must(t, teller.Close()) })
	w := &world{t, shop, "--nats-url=" + server.URL()}
	for _, namespace := range []string{"shop", "feat", "empty"} {
		w.is(kinds.Namespaces.Kind, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	w.is(kinds.ConfigMaps.Kind, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "colours", Labels: map[string]string{"app": "web"}}, Data: map[string]string{"a": "b"}})
	return w
}

// is records the current state of an object.
func (w *world) is(kind kinds.Kind, object recordtest.Object) {
	w.Helper()
	must(w.T, w.Is(w.Context(), kind, object, "kubectl-create"))
}

// run runs a command on the bus.
func (w *world) run(args ...string) (string, error) {
	return command(w.Context(), append(args, w.address)...)
}
