package history

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/services/writer/apply"
)

// TestAnOwnersNameIsNoPath: a user who may create an object may write any name into its
// owner references, and the API server does not check it. The garbage collector looks for
// the owner; that name must not become a path to what its identity may reach.
//
// Upstream: pkg/controller/garbagecollector builds the path with the client for metadata,
// which does not check the name either.
func TestAnOwnersNameIsNoPath(t *testing.T) {
	const name = "../../kube-system/services/http:admin:80/proxy/reset"
	child := reconciletest.Pod("child", reconciletest.In[*corev1.Pod]("team-a"),
		reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, named(name, "uid-x")))
	server := serve(t, child)
	door, err := apply.New(apply.Config{REST: &rest.Config{Host: server.URL}}, []apply.Actor{collector})
	if err != nil {
		t.Fatal(err)
	}
	world := reconciletest.NewWorld(kinds.ReplicaSets.Kind).Put(kinds.Pods.Kind, child)
	d, ok := garbagecollector.Controller.Ask(world, events.Key{Kind: kinds.Pods.Name, Namespace: "team-a", Name: "child"}, reconciletest.Now)
	if !ok || len(d.Commands) != 1 || len(d.Commands[0].If.Absent) != 1 {
		t.Fatalf("decided %+v", d)
	}
	carryOut(t, door, events.Turn{Controller: collector.Controller, Lane: events.LaneWrite, Commands: d.Commands})
	for _, r := range server.Requests() {
		if strings.Contains(r.Path, "kube-system") || strings.Contains(r.Path, "proxy") || strings.Contains(r.Path, "..") {
			t.Errorf("the owner's name led to %s", r.Path)
		}
	}
	if deleted := deleted(server); len(deleted) != 1 || deleted[0] != "/api/v1/namespaces/team-a/pods/child" {
		t.Errorf("deleted %v: an owner that cannot be is absent", deleted)
	}
}
