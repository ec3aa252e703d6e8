// Package fakeserver is an API server for tests: it stores objects, checks the preconditions of
// writes, and can lose answers on request. It knows no schema, no defaults and no admission.
package fakeserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Request is a request that the server received.
type Request struct {
	Method, Path string
	Query        url.Values
	Header       http.Header
	Body         []byte
}

// Fault is what goes wrong with a request; the zero value is no fault.
type Fault struct {
	// Lost carries the request out and drops the connection before the answer.
	Lost bool
	// Code answers with a status instead of carrying the request out.
	Code int
	// RetryAfter goes with Code, in seconds. Message replaces the message that the test asked for
	// it.
	RetryAfter int
	Message    string
	// Continue is the token that goes with Code 410, for clients that accept pages of different
	// versions.
	Continue string
	// Unserved answers like an API server that does not serve the resource.
	Unserved bool
	// Late delays the events of a watch, and its end.
	Late time.Duration
}

// change is a past change, to be sent to watches.
type change struct {
	path    string
	version int
	event   map[string]any
}

// Server is an API server in memory.
type Server struct {
	*httptest.Server

	mu       sync.Mutex
	fault    func(Request) Fault
	hold     func(Request)
	answered map[string]int // by method and path
	requests []Request
	objects  map[string]map[string]any // by path
	version  int
	created  map[string]int // how often an object was created at a path
	past     []change       // the history that watches are sent
}

// New starts a server that stops when the test ends.
func New(t testing.TB) *Server {
	s := &Server{objects: map[string]map[string]any{}, created: map[string]int{}, answered: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// Break sets the function that picks the fault of each later request.
func (s *Server) Break(fault func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Hold sets a function that every later request waits for before it is processed.
func (s *Server) Hold(hold func(Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = hold
}

// Answered returns how many requests of a method and path ("POST /api/...") have been answered.
func (s *Server) Answered(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered[what]
}

// Remove deletes an object, whatever its preconditions.
func (s *Server) Remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(path)
}

// end deletes an object, if it exists.
func (s *Server) end(path string) {
	if object, ok := s.objects[path]; ok {
		s.version++
		s.past = append(s.past, change{path, s.version, map[string]any{"type": "DELETED", "object": object}})
	}
	delete(s.objects, path)
}

// Requests returns the requests received, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Paths returns the paths of all objects, sorted.
func (s *Server) Paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Created returns how often an object was created at a path.
func (s *Server) Created(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.created[path]
}

// Put stores an object and returns the resourceVersion of the write.
func (s *Server) Put(path, uid string, object map[string]any) (version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(path, uid, object)
}

// Get returns the object at a path, nil if there is none.
func (s *Server) Get(path string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path]
}

func (s *Server) put(path, uid string, object map[string]any) string {
	s.version++
	metadata := metadataOf(object)
	metadata["uid"], metadata["resourceVersion"] = uid, strconv.Itoa(s.version)
	object["metadata"] = metadata
	s.objects[path] = object
	s.past = append(s.past, change{path, s.version, map[string]any{"type": "MODIFIED", "object": object}})
	return strconv.Itoa(s.version)
}

func metadataOf(object map[string]any) map[string]any {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
	}
	return metadata
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	request := Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header, Body: body}
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		hold(request)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered[request.Method+" "+request.Path]++
	var fault Fault
	if s.fault != nil {
		fault = s.fault(request)
	}
	s.requests = append(s.requests, request)
	if fault.Unserved {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if fault.Code != 0 {
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		refused := status(fault.Code, "", cmp.Or(fault.Message, "as the test asked"))
		if fault.Continue != "" {
			refused.Reason, refused.Continue = metav1.StatusReasonExpired, fault.Continue
		}
		reply(w, fault.Code, refused)
		return
	}
	if request.Query.Get("watch") != "" {
		if fault.Lost {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		time.Sleep(fault.Late)
		s.tell(w, request)
		return
	}
	code, answer := s.answer(request)
	if fault.Lost {
		panic(http.ErrAbortHandler)
	}
	reply(w, code, answer)
}

// tell answers a watch with the changes of one name since a version, and ends it.
func (s *Server) tell(w http.ResponseWriter, r Request) {
	since, _ := strconv.Atoi(r.Query.Get("resourceVersion"))
	for _, c := range s.past {
		if c.version > since && c.path == r.Path+"/"+strings.TrimPrefix(r.Query.Get("fieldSelector"), "metadata.name=") {
			_ = json.NewEncoder(w).Encode(c.event) // a client that went away is part of the tests
		}
	}
}

// at returns the object that was at a path at a version.
func (s *Server) at(path string, version int) (object map[string]any, ok bool) {
	for _, c := range s.past {
		if c.path == path && c.version <= version {
			object, ok = c.event["object"].(map[string]any), c.event["type"] != "DELETED"
		}
	}
	return object, ok
}

func (s *Server) answer(r Request) (int, any) {
	if answer, ok := discovery[r.Path]; ok {
		return http.StatusOK, answer
	}
	switch r.Method {
	case http.MethodPost:
		if strings.HasSuffix(r.Path, "/subjectaccessreviews") {
			return review(r)
		}
		return s.create(r)
	case http.MethodGet:
		if object, ok := s.objects[r.Path]; ok {
			return http.StatusOK, object
		}
		if name, ok := strings.CutPrefix(r.Query.Get("fieldSelector"), "metadata.name="); ok {
			name, kind, typed := strings.Cut(name, ",type=")
			items, version := []any{}, s.version
			if r.Query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact) {
				version, _ = strconv.Atoi(r.Query.Get("resourceVersion"))
			}
			if object, ok := s.at(r.Path+"/"+name, version); ok && (!typed || object["type"] == kind) {
				items = append(items, object)
			}
			return http.StatusOK, map[string]any{"kind": "List", "items": items, "metadata": map[string]any{"resourceVersion": strconv.Itoa(version)}}
		}
		if items, ok := s.list(r.Path); ok {
			if kind, typed := strings.CutPrefix(r.Query.Get("fieldSelector"), "type="); typed {
				items = slices.DeleteFunc(items, func(item any) bool { return item.(map[string]any)["type"] != kind })
			}
			return http.StatusOK, page(items, r.Query, s.version)
		}
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, r.Path)
	case http.MethodPut, http.MethodPatch:
		return s.change(r)
	case http.MethodDelete:
		return s.remove(r)
	default:
		return failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method)
	}
}

// list returns the objects of a collection; ok is false if the path is none.
func (s *Server) list(path string) (items []any, ok bool) {
	if !slices.Contains([]string{"pods", "replicasets", "ipaddresses", "servicecidrs", "secrets", "nodes"}, path[strings.LastIndex(path, "/")+1:]) {
		return nil, false
	}
	items = []any{}
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		if within(at, path) {
			items = append(items, s.objects[at])
		}
	}
	return items, true
}

// within reports whether an object is in a collection, of one namespace or of all.
func within(at, path string) bool {
	if name, under := strings.CutPrefix(at, path+"/"); under {
		return !strings.Contains(name, "/")
	}
	slash := strings.LastIndex(path, "/")
	root, resource := path[:slash], path[slash+1:]
	rest, under := strings.CutPrefix(at, root+"/namespaces/")
	parts := strings.Split(rest, "/")
	return under && len(parts) == 3 && parts[1] == resource
}

// page returns a list, or the requested page of it.
func page(items []any, query url.Values, version int) map[string]any {
	from, _ := strconv.Atoi(query.Get("continue")) // this server issued it
	metadata := map[string]any{"resourceVersion": strconv.Itoa(version)}
	list := map[string]any{"kind": "List", "items": items[from:], "metadata": metadata}
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && from+limit < len(items) {
		list["items"] = items[from : from+limit]
		metadata["continue"] = strconv.Itoa(from + limit)
	}
	return list
}

// Allowed is the group whose members may do everything; others may do nothing.
const Allowed = "allowed"

// review answers whether a user may do something. It stores nothing.
func review(r Request) (int, any) {
	var object map[string]any
	if err := json.Unmarshal(r.Body, &object); err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	spec, _ := object["spec"].(map[string]any)
	groups, _ := spec["groups"].([]any)
	object["status"] = map[string]any{"allowed": slices.Contains(groups, any(Allowed)), "reason": "of the group"}
	return http.StatusCreated, object
}

func (s *Server) create(r Request) (int, any) {
	var object map[string]any
	if err := json.Unmarshal(r.Body, &object); err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	name, _ := metadataOf(object)["name"].(string)
	path := r.Path + "/" + name
	if name == "" {
		return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "no name")
	}
	if _, ok := s.objects[path]; ok {
		return failure(http.StatusConflict, metav1.StatusReasonAlreadyExists, path)
	}
	if !r.Query.Has("dryRun") {
		s.created[path]++
		s.put(path, fmt.Sprintf("uid-%d", s.version+1), object)
	}
	return http.StatusCreated, object
}

func (s *Server) change(r Request) (int, any) {
	path := strings.TrimSuffix(r.Path, "/status")
	object, ok := s.objects[path]
	if !ok {
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, path)
	}
	var change map[string]any
	if err := json.Unmarshal(r.Body, &change); err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	live, wanted := metadataOf(object), metadataOf(change)
	for _, field := range []string{"uid", "resourceVersion"} {
		if wanted[field] != nil && wanted[field] != live[field] {
			return failure(http.StatusConflict, metav1.StatusReasonConflict, field)
		}
	}
	uid, _ := live["uid"].(string)
	if r.Method == http.MethodPatch {
		merged, metadata := maps.Clone(object), maps.Clone(live)
		maps.Copy(merged, change)
		maps.Copy(metadata, wanted)
		merged["metadata"] = metadata
		change = merged
	}
	s.put(path, uid, change)
	return http.StatusOK, change
}

func (s *Server) remove(r Request) (int, any) {
	var options metav1.DeleteOptions
	if err := json.Unmarshal(r.Body, &options); err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	object, ok := s.objects[r.Path]
	if !ok {
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, r.Path)
	}
	if p := options.Preconditions; p != nil {
		metadata := metadataOf(object)
		if (p.UID != nil && metadata["uid"] != string(*p.UID)) ||
			(p.ResourceVersion != nil && metadata["resourceVersion"] != *p.ResourceVersion) {
			return failure(http.StatusConflict, metav1.StatusReasonConflict, "precondition")
		}
	}
	s.end(r.Path)
	return http.StatusOK, status(http.StatusOK, "", "")
}

func failure(code int, reason metav1.StatusReason, message string) (int, any) {
	return code, status(code, reason, message)
}

func status(code int, reason metav1.StatusReason, message string) metav1.Status {
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
	if code < http.StatusBadRequest {
		s.Status = metav1.StatusSuccess
	}
	return s
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // a client that went away is part of the tests
}

// discovery has the server's discovery documents.
var discovery = map[string]any{
	"/readyz": metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess},
	"/api":    metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
	"/apis": metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups: []metav1.APIGroup{{
			Name:             "apps",
			Versions:         []metav1.GroupVersionForDiscovery{{GroupVersion: "apps/v1", Version: "v1"}},
			PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "apps/v1", Version: "v1"},
		}},
	},
	"/api/v1": metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
		APIResources: []metav1.APIResource{
			{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "delete"}},
			{Name: "nodes", Kind: "Node", Verbs: metav1.Verbs{"get", "list", "delete"}},
		},
	},
	"/apis/apps/v1": metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "apps/v1",
		APIResources: []metav1.APIResource{
			{Name: "replicasets", Kind: "ReplicaSet", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "delete", "update", "patch"}},
			{Name: "replicasets/scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Namespaced: true, Verbs: metav1.Verbs{"get", "update"}},
		},
	},
}
