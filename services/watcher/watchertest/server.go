package watchertest

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/services/watcher/source"
)

// Server is an API server of pods and, on request, of [Widgets]. It is at version 1.
type Server struct {
	*apiservertest.Server
	transport http.RoundTripper // of an offline server
}

var read = []string{"delete", "list", "watch"}

// Widgets are a custom kind.
var Widgets = apiservertest.Resource{Group: "example.com", Version: "v1", Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: read}

func newServer(t *testing.T, options ...apiservertest.Option) *Server {
	t.Helper()
	pods := apiservertest.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true, Verbs: read}
	s := &Server{Server: apiservertest.New(t, append(options, apiservertest.Serving(pods))...)}
	s.Unserve(Widgets)
	s.Load(1, nil)
	return s
}

// Serve serves an API server on a port of this machine until the test ends.
func Serve(t *testing.T) *Server {
	t.Helper()
	return newServer(t)
}

// Offline is a server without a network, so that a watcher of it runs in virtual time.
func Offline(t *testing.T) *Server {
	t.Helper()
	s := newServer(t, apiservertest.Offline)
	s.transport = s.Server
	return s
}

// REST is the configuration of a client of the server.
func (s *Server) REST() *rest.Config { return &rest.Config{Host: s.URL, Transport: s.transport} }

// Source is the door of a watcher to the server.
func (s *Server) Source(t *testing.T) *source.Source {
	t.Helper()
	from, err := source.New(s.REST())
	if err != nil {
		t.Fatal(err)
	}
	return from
}

// PodPath is the path of a pod in the namespace default.
func PodPath(name string) string { return pathOf("pods", name) }

// pathOf is the path of an object of one of the kinds of the tests.
func pathOf(resource, name string) string {
	switch resource {
	case Widgets.Name:
		return "/apis/example.com/v1/namespaces/default/widgets/" + name
	case "customresourcedefinitions":
		return "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name
	default:
		return "/api/v1/namespaces/default/" + resource + "/" + name
	}
}

// PutPod creates or changes a pod. The name of its node has the length of padding.
func (s *Server) PutPod(name string, padding int) {
	s.Edit("pods", name, func(p *corev1.Pod) { p.Spec.NodeName = strings.Repeat("n", padding) })
}

// RemovePod deletes a pod.
func (s *Server) RemovePod(name string) { s.Remove(PodPath(name)) }

// Edit creates or changes an object of a resource. It is a pod whatever the resource: a watcher of
// these tests asks for no more than the metadata of other kinds.
func (s *Server) Edit(resource, name string, edit func(*corev1.Pod)) {
	var pod corev1.Pod
	if stored := s.Get(pathOf(resource, name)); stored != nil {
		text, err := json.Marshal(stored)
		if err == nil {
			err = json.Unmarshal(text, &pod)
		}
		if err != nil {
			panic(err) // it was a pod when it was stored
		}
	}
	edit(&pod)
	s.Put(pathOf(resource, name), "", pod)
}

// Refuse answers the later requests for a resource, or for all if it is "", with a status.
func (s *Server) Refuse(resource string, code int) {
	s.Break(func(r apiservertest.Request) (f apiservertest.Fault) {
		if resource == "" || path.Base(r.Path) == resource {
			f.Code = code
		}
		return f
	})
}

// Vanish makes the server unreachable.
func (s *Server) Vanish() {
	s.Break(func(apiservertest.Request) apiservertest.Fault { return apiservertest.Fault{Closed: true} })
}

// Listed is how many full lists there were, streamed or not.
func (s *Server) Listed() (lists int) {
	for _, r := range s.Requests() {
		q := r.Query
		list := q.Get("watch") == "" && q.Get("limit") != "1" || q.Get("sendInitialEvents") == "true"
		if parts := strings.Split(r.Path, "/"); len(parts) > 3 && r.Method == http.MethodGet && r.Code == http.StatusOK && list {
			lists++
		}
	}
	return lists
}

// Asked are the times at which a resource or a document of discovery was requested.
func (s *Server) Asked(resource string) (times []time.Time) {
	for _, r := range s.Requests() {
		if path.Base(r.Path) == resource {
			times = append(times, r.At)
		}
	}
	return times
}

// Since returns when a resource was requested, as durations after from.
func (s *Server) Since(resource string, from time.Time) (asked []time.Duration) {
	for _, at := range s.Asked(resource) {
		if !at.Before(from) {
			asked = append(asked, at.Sub(from))
		}
	}
	return asked
}
