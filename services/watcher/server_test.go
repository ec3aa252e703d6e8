package watcher

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

	"github.com/millrace/millrace/pkg/events/kinds"
)

// change is one line of the server's history; a bookmark has no object.
type change struct {
	what     string
	resource string
	pod      corev1.Pod
}

// server is an API server of pods and, on request, of a custom kind. Tests can compact, restore,
// refuse and interrupt its history.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	version  int
	objects  map[string]map[string]corev1.Pod // by resource and name
	history  []change
	oldest   int // it answers watches from before this version with 410
	lists    int // full lists, streamed or not
	streams  bool
	custom   bool           // widgets.example.com is served
	stale    bool           // the discovery document of widgets is stale
	refuse   map[string]int // a resource, or "" for all: answer with this status
	after    int            // and this Retry-After
	once     bool           // and only the first time
	since    []time.Time    // when pods were requested
	asked    []string       // refused requests
	watchers map[chan struct{}]bool
	serving  int // requests that have not ended
}

func newServer() *server {
	return &server{
		objects: map[string]map[string]corev1.Pod{"pods": {}, "widgets": {}}, version: 1, streams: true,
		refuse: map[string]int{}, watchers: map[chan struct{}]bool{},
	}
}

func serve(t *testing.T) *server {
	s := newServer()
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Server.Close)
	t.Cleanup(s.cut) // before the server closes, which waits for its requests
	return s
}

// set changes how the server behaves.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) change(what, name string, padding int) {
	s.changeOf("pods", what, name, func(p *corev1.Pod) { p.Spec.NodeName = strings.Repeat("n", padding) })
}

func (s *server) changeOf(resource, what, name string, edit func(*corev1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	pod, there := s.objects[resource][name]
	if !there {
		pod.Namespace, pod.Name, pod.UID = "default", name, types.UID(fmt.Sprint("uid-", s.version))
	}
	pod.ResourceVersion = strconv.Itoa(s.version)
	edit(&pod)
	s.history = append(s.history, change{what, resource, pod})
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]corev1.Pod{}
	}
	s.objects[resource][name] = pod
	if what == "DELETED" {
		delete(s.objects[resource], name)
	}
	s.wake()
}

// bookmark sends the watches a version without a change.
func (s *server) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for resource := range s.objects {
		c := change{what: "BOOKMARK", resource: resource}
		c.pod.ResourceVersion = strconv.Itoa(s.version)
		s.history = append(s.history, c)
	}
	s.wake()
}

func (s *server) wake() {
	for w := range s.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// isServing returns how many requests have not ended.
func (s *server) isServing() (n int) {
	s.set(func() { n = s.serving })
	return n
}

// cut ends every watch.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		delete(s.watchers, w)
		close(w)
	}
}

// forget compacts the history away.
func (s *server) forget() { s.set(func() { s.oldest = s.version }) }

// restore takes the storage back to a version, as from a backup.
func (s *server) restore(version int) {
	s.cut()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.history
	s.version, s.history = version, nil
	s.objects = map[string]map[string]corev1.Pod{"pods": {}, "widgets": {}}
	for _, c := range all {
		if v, _ := strconv.Atoi(c.pod.ResourceVersion); v > version {
			break
		}
		s.history = append(s.history, c)
		if s.objects[c.resource][c.pod.Name] = c.pod; c.what != "ADDED" && c.what != "MODIFIED" {
			delete(s.objects[c.resource], c.pod.Name)
		}
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	s.set(func() { s.serving++ })
	defer s.set(func() { s.serving-- })
	s.mu.Lock()
	code := max(s.refuse[""], s.refuse[resource])
	if resource == "widgets" && !s.custom {
		code = http.StatusNotFound
	}
	if resource == "pods" {
		s.since = append(s.since, time.Now())
	}
	if code != 0 {
		s.asked = append(s.asked, resource)
	}
	after := s.after
	if s.once && code != 0 {
		clear(s.refuse)
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

func (s *server) discover(w http.ResponseWriter, r *http.Request, path string) {
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
	case s.stale:
		list.Items = []apidiscovery.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: "example.com"},
			Versions:   []apidiscovery.APIVersionDiscovery{{Version: "v1", Freshness: apidiscovery.DiscoveryFreshnessStale}},
		}}
	case s.custom:
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

func (s *server) list(w http.ResponseWriter, r *http.Request, resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	_, name, one := strings.Cut(q.Get("fieldSelector"), "metadata.name=")
	if q.Get("limit") != "1" {
		s.lists++
	}
	list := struct {
		metav1.TypeMeta
		metav1.ListMeta `json:"metadata"`
		Items           []runtime.Object `json:"items"`
	}{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if resource != "pods" {
		list.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}
	}
	list.ResourceVersion = strconv.Itoa(s.version)
	for _, p := range s.objects[resource] {
		if !one || p.Name == name {
			list.Items = append(list.Items, shown(resource, p))
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	initial := q.Get("sendInitialEvents") == "true"
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	s.mu.Lock()
	code := 0
	switch {
	case initial && !s.streams:
		code = http.StatusUnprocessableEntity
	case !initial && from < s.oldest:
		code = http.StatusGone
	case from > s.version:
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
func (s *server) initially(w http.ResponseWriter, resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	for _, p := range s.objects[resource] {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": shown(resource, p)})
	}
	var end corev1.Pod
	end.ResourceVersion, end.Annotations = strconv.Itoa(s.version), map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "BOOKMARK", "object": shown(resource, end)})
	return s.version
}

// tell sends the history from a version on, and returns where it ends.
func (s *server) tell(w http.ResponseWriter, resource string, from int) int {
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
