package history

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/plan"
)

// kubernetes/kubernetes #65200, fixed by #92743. A user copied objects from one namespace to another with
// their owner references. After the next restart of the controller manager the garbage collector deleted the
// originals, including volumes, although their owner existed.
//
// The copy names an owner that does not exist in the copy's namespace, so the owner is rightly absent. The
// garbage collector remembered that absence by the owner's uid alone. It then took the original's owner,
// which has the same uid and was not in the new graph yet, for absent.
//
// In Millrace the writer remembers an absence by the whole reference and its namespace.
func TestACopyDoesNotEndItsOriginal(t *testing.T) {
	play := func(t *testing.T, door func(asker) asker) []string {
		server := serve(t, child("copy"), child("original"))
		server.Put("/apis/apps/v1/namespaces/original/replicasets/web", "uid-web", map[string]any{})
		real, err := apply.New(apply.Config{REST: &rest.Config{Host: server.URL}}, []apply.Actor{collector})
		if err != nil {
			t.Fatal(err)
		}
		through := door(real)
		for _, namespace := range []string{"copy", "original"} {
			carryOut(t, through, events.Turn{Commands: collect(t, namespace)})
		}
		return deleted(server)
	}
	if deleted := play(t, func(a asker) asker { return &forgetsPlaces{asker: a, gone: map[types.UID]bool{}} }); len(deleted) != 2 {
		t.Errorf("deleted %v: the story does not show the bug", deleted)
	}
	if deleted := play(t, func(a asker) asker { return a }); len(deleted) != 1 || deleted[0] != "/api/v1/namespaces/copy/pods/child" {
		t.Errorf("deleted %v, want the copy alone", deleted)
	}
}

var collector = apply.Actor{Controller: "garbage-collector-controller", Identity: "generic-garbage-collector"}

// asker makes requests.
type asker interface {
	Do(ctx context.Context, a apply.Actor, r plan.Request, auditID string) plan.Response
}

// forgetsPlaces remembers absent owners by uid alone.
type forgetsPlaces struct {
	asker
	gone map[types.UID]bool
}

func (f *forgetsPlaces) Do(ctx context.Context, a apply.Actor, r plan.Request, auditID string) plan.Response {
	if r.Owner != nil && f.gone[r.Owner.UID] {
		return plan.Response{Code: http.StatusNotFound, Reason: string(metav1.StatusReasonNotFound)}
	}
	answer := f.asker.Do(ctx, a, r, auditID)
	if r.Owner != nil && answer.Code == http.StatusNotFound {
		f.gone[r.Owner.UID] = true
	}
	return answer
}

// child is a pod that names an owner in its namespace.
func child(namespace string) *corev1.Pod {
	return reconciletest.Pod("child", reconciletest.In[*corev1.Pod](namespace),
		reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, named("web", "uid-web")))
}

// collect returns the garbage collector's commands for a child in a namespace while its cache lacks the
// owner.
func collect(t *testing.T, namespace string) []events.Command {
	t.Helper()
	world := reconciletest.NewWorld(kinds.ReplicaSets.Kind).Put(kinds.Pods.Kind, child(namespace))
	d, ok := garbagecollector.Controller.Ask(world, events.Key{Kind: kinds.Pods.Name, Namespace: namespace, Name: "child"}, reconciletest.Now)
	if !ok || len(d.Commands) != 1 {
		t.Fatalf("decided %+v", d)
	}
	return d.Commands
}

func carryOut(t *testing.T, through asker, turn events.Turn) {
	t.Helper()
	p := plan.New(turn, plan.Options{})
	for range 100 {
		for _, r := range p.Next() {
			answer := through.Do(t.Context(), collector, r, "")
			answer.Spent = true
			p.Answer(r.Command, answer)
		}
		if _, done := p.Results(); done {
			return
		}
	}
	t.Fatal("the turn has no end")
}

// serve serves some pods, and can serve ReplicaSets.
func serve(t *testing.T, children ...*corev1.Pod) *apiservertest.Server {
	t.Helper()
	verbs := []string{"get", "list", "delete"}
	s := apiservertest.New(t, apiservertest.Serving(
		apiservertest.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs},
		apiservertest.Resource{Group: "apps", Version: "v1", Name: "replicasets", Kind: "ReplicaSet", Namespaced: true, Verbs: verbs},
	))
	for _, child := range children {
		s.Put("/api/v1/namespaces/"+child.Namespace+"/pods/"+child.Name, "", child)
	}
	return s
}

// deleted are the paths of the objects that were deleted.
func deleted(s *apiservertest.Server) (paths []string) {
	for _, r := range s.Requests() {
		if r.Method == http.MethodDelete && r.Code == http.StatusOK {
			paths = append(paths, r.Path)
		}
	}
	return paths
}
