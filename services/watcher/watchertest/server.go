package watchertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/source"
)

// Change is one line of the server's history; a bookmark has no object.
type change struct {
	what     string
	resource string
	pod      corev1.Pod
}

// Server is an API server of pods and, on request, of a custom kind. Tests can compact, restore,
// refuse and interrupt its history.
type Server struct {
	*httptest.Server
	mu        sync.Mutex
	Version   int
	Objects   map[string]map[string]corev1.Pod // by resource and name
	history   []change
	oldest    int // it answers watches from before this version with 410
	Lists     int // full lists, streamed or not
	Streams   bool
	Custom    bool           // widgets.example.com is served
	Stale     bool           // the discovery document of widgets is stale
	Refuse    map[string]int // a resource, or "" for all: answer with this status
	After     int            // and this Retry-After
	Once      bool           // and only the first time
	Requested []time.Time    // when pods were requested
	Refused   []string       // refused requests
	watchers  map[chan struct{}]bool
	serving   int // requests that have not ended
}

func newServer() *Server {
	return &Server{
		Objects: map[string]map[string]corev1.Pod{"pods": {}, "widgets": {}}, Version: 1, Streams: true,
		Refuse: map[string]int{}, watchers: map[chan struct{}]bool{},
	}
}

// Serve serves an API server on a port of this machine until the test ends.
func Serve(t *testing.T) *Server {
	s := newServer()
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Server.Close)
	t.Cleanup(s.Cut) // before the server closes, which waits for its requests
	return s
}

// Set changes how the server behaves.
func (s *Server) Set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Change changes a pod; what is the type of the event.
func (s *Server) Change(what, name string, padding int) {
	s.ChangeOf("pods", what, name, func(p *corev1.Pod) { p.Spec.NodeName = strings.Repeat("n", padding) })
}

// ChangeOf changes an object of a resource.
func (s *Server) ChangeOf(resource, what, name string, edit func(*corev1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Version++
	pod, there := s.Objects[resource][name]
	if !there {
		pod.Namespace, pod.Name, pod.UID = "default", name, types.UID(fmt.Sprint("uid-", s.Version))
	}
	pod.ResourceVersion = strconv.Itoa(s.Version)
	edit(&pod)
	s.history = append(s.history, change{what, resource, pod})
	if s.Objects[resource] == nil {
		s.Objects[resource] = map[string]corev1.Pod{}
	}
	s.Objects[resource][name] = pod
	if what == "DELETED" {
		delete(s.Objects[resource], name)
	}
	s.wake()
}

// Bookmark sends the watches a version without a change.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Version++
	for resource := range s.Objects {
		c := change{what: "BOOKMARK", resource: resource}
		c.pod.ResourceVersion = strconv.Itoa(s.Version)
		s.history = append(s.history, c)
	}
	s.wake()
}

func (s *Server) wake() {
	for w := range s.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// Serving returns how many requests have not ended.
func (s *Server) Serving() (n int) {
	s.Set(func() { n = s.serving })
	return n
}

// Cut ends every watch.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		delete(s.watchers, w)
		close(w)
	}
}

// Forget compacts the history away.
func (s *Server) Forget() { s.Set(func() { s.oldest = s.Version }) }

// Restore takes the storage back to a version, as from a backup.
func (s *Server) Restore(version int) {
	s.Cut()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.history
	s.Version, s.history = version, nil
	s.Objects = map[string]map[string]corev1.Pod{"pods": {}, "widgets": {}}
	for _, c := range all {
		if v, _ := strconv.Atoi(c.pod.ResourceVersion); v > version {
			break
		}
		s.history = append(s.history, c)
		if s.Objects[c.resource][c.pod.Name] = c.pod; c.what != "ADDED" && c.what != "MODIFIED" {
			delete(s.Objects[c.resource], c.pod.Name)
		}
	}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	s.Set(func() { s.serving++ })
	defer s.Set(func() { s.serving-- })
	s.mu.Lock()
	code := max(s.Refuse[""], s.Refuse[resource])
	if resource == "widgets" && !s.Custom {
		code = http.StatusNotFound
	}
	if resource == "pods" {
		s.Requested = append(s.Requested, time.Now())
	}
	if code != 0 {
		s.Refused = append(s.Refused, resource)
	}
	after := s.After
	if s.Once && code != 0 {
		clear(s.Refuse)
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", kinds.JSON)
	switch {
	case code != 0:
		if after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(after))
		}
		fail(w, code)
	case resource == "api" || resource == "apis":
		s.discover(w, r, resource)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, resource)
	default:
		s.list(w, r, resource)
	}
}

func fail(w http.ResponseWriter, code int) {
	reason := map[int]metav1.StatusReason{
		http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
		http.StatusGone: metav1.StatusReasonExpired, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
	}[code]
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code),
	}
	if code == http.StatusGatewayTimeout {
		status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}

func (s *Server) discover(w http.ResponseWriter, r *http.Request, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := func(name, kind, group string) apidiscovery.APIVersionDiscovery {
		return apidiscovery.APIVersionDiscovery{Version: "v1", Freshness: apidiscovery.DiscoveryFreshnessCurrent, Resources: []apidiscovery.APIResourceDiscovery{{
			Resource: name, ResponseKind: &metav1.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
			Scope: apidiscovery.ScopeNamespace, Verbs: []string{"delete", "list", "watch"},
		}}}
	}
	var list apidiscovery.APIGroupDiscoveryList
	switch {
	case path == "api":
		list.Items = []apidiscovery.APIGroupDiscovery{{Versions: []apidiscovery.APIVersionDiscovery{resource("pods", "Pod", "")}}}
	case s.Stale:
		list.Items = []apidiscovery.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: "example.com"},
			Versions:   []apidiscovery.APIVersionDiscovery{{Version: "v1", Freshness: apidiscovery.DiscoveryFreshnessStale}},
		}}
	case s.Custom:
		list.Items = []apidiscovery.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: "example.com"}, Versions: []apidiscovery.APIVersionDiscovery{resource("widgets", "Widget", "example.com")},
		}}
	}
	body, _ := json.Marshal(list)
	tag := fmt.Sprintf("%q", fmt.Sprint(len(body)))
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	_, _ = w.Write(body)
}

// shown returns an object as the request wants it: pods in full, other kinds as metadata.
func shown(resource string, pod corev1.Pod) runtime.Object {
	if resource == "pods" {
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		return &pod
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: pod.ObjectMeta,
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	_, name, one := strings.Cut(q.Get("fieldSelector"), "metadata.name=")
	if q.Get("limit") != "1" {
		s.Lists++
	}
	list := struct {
		metav1.TypeMeta
		metav1.ListMeta `json:"metadata"`
		Items           []runtime.Object `json:"items"`
	}{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if resource != "pods" {
		list.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}
	}
	list.ResourceVersion = strconv.Itoa(s.Version)
	for _, p := range s.Objects[resource] {
		if !one || p.Name == name {
			list.Items = append(list.Items, shown(resource, p))
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	initial := q.Get("sendInitialEvents") == "true"
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	s.mu.Lock()
	code := 0
	switch {
	case initial && !s.Streams:
		code = http.StatusUnprocessableEntity
	case !initial && from < s.oldest:
		code = http.StatusGone
	case from > s.Version:
		code = http.StatusGatewayTimeout
	default:
		s.watchers[wake] = true
	}
	s.mu.Unlock()
	if code != 0 {
		fail(w, code)
		return
	}
	w.WriteHeader(http.StatusOK)
	if initial {
		from = s.initially(w, resource)
	}
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case _, open := <-wake:
			if !open {
				return
			}
		}
		from = s.tell(w, resource, from)
	}
}

// initially sends all existing objects.
func (s *Server) initially(w http.ResponseWriter, resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Lists++
	for _, p := range s.Objects[resource] {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": shown(resource, p)})
	}
	var end corev1.Pod
	end.ResourceVersion, end.Annotations = strconv.Itoa(s.Version), map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "BOOKMARK", "object": shown(resource, end)})
	return s.Version
}

// tell sends the history from a version on, and returns where it ends.
func (s *Server) tell(w http.ResponseWriter, resource string, from int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.history {
		if v, _ := strconv.Atoi(c.pod.ResourceVersion); v > from && c.resource == resource {
			from = v
			_ = json.NewEncoder(w).Encode(map[string]any{"type": c.what, "object": shown(resource, c.pod)})
		}
	}
	return from
}

// Listed is how many full lists there were.
func (s *Server) Listed() (lists int) {
	s.Set(func() { lists = s.Lists })
	return lists
}

// Asks are the times at which the server was asked for pods.
// Asks are when pods were requested.
func (s *Server) Asks() (times []time.Time) {
	s.Set(func() { times = append(times, s.Requested...) })
	return times
}

// Source is the door of a watcher to the server.
func (s *Server) Source(t *testing.T) *source.Source {
	t.Helper()
	return sourceOf(t, &rest.Config{Host: s.URL})
}

func sourceOf(t *testing.T, config *rest.Config) *source.Source {
	t.Helper()
	from, err := source.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return from
}
