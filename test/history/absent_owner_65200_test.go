package history

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
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
	play := func(t *testing.T, door func(asker) asker) (deleted []string) {
		server := httptest.NewServer(&smallServer{deleted: &deleted})
		defer server.Close()
		real, err := apply.New(apply.Config{REST: &rest.Config{Host: server.URL}}, []apply.Actor{collector})
		if err != nil {
			t.Fatal(err)
		}
		through := door(real)
		for _, namespace := range []string{"copy", "original"} {
			carryOut(t, through, events.Turn{Commands: collect(t, namespace)})
		}
		return deleted
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

// collect returns the garbage collector's commands for a child in a namespace while its cache lacks the
// owner.
func collect(t *testing.T, namespace string) []events.Command {
	t.Helper()
	child := reconciletest.Pod("child", reconciletest.In[*corev1.Pod](namespace),
		reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, named("web", "uid-web")))
	world := reconciletest.NewWorld(kinds.ReplicaSets.Kind).Put(kinds.Pods.Kind, child)
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

// smallServer is an API server that has the ReplicaSet original/web, and a pod "child" in every namespace.
type smallServer struct{ deleted *[]string }

func (s *smallServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verbs := metav1.Verbs{"get", "list", "delete"}
	group := func(version, name, kind string) metav1.APIResourceList {
		return metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version,
			APIResources: []metav1.APIResource{{Name: name, Kind: kind, Namespaced: true, Verbs: verbs}},
		}
	}
	apps := metav1.GroupVersionForDiscovery{GroupVersion: "apps/v1", Version: "v1"}
	switch {
	case r.Method == http.MethodDelete:
		*s.deleted = append(*s.deleted, r.URL.Path)
		write(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	case r.URL.Path == "/api":
		write(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		write(w, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{
			{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{apps}, PreferredVersion: apps},
		}})
	case r.URL.Path == "/api/v1":
		write(w, http.StatusOK, group("v1", "pods", "Pod"))
	case r.URL.Path == "/apis/apps/v1":
		write(w, http.StatusOK, group("apps/v1", "replicasets", "ReplicaSet"))
	case strings.HasSuffix(r.URL.Path, "/original/replicasets/web"):
		write(w, http.StatusOK, metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "original", Name: "web", UID: "uid-web", ResourceVersion: "7"},
		})
	default:
		write(w, http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Message: "not found",
		})
	}
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client notices
}
