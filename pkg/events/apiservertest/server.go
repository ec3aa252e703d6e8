package apiservertest

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
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
	At           time.Time // when it arrived
	Code         int       // the status of the answer; 0: there is none of the server, or none yet
}

// watches reports whether the request is a watch.
func (r Request) watches() bool { return r.Query.Get("watch") == "true" || r.Query.Get("watch") == "1" }

// Fault is what goes wrong with a request; the zero value is no fault.
type Fault struct {
	// Lost carries the request out and drops the connection before the answer. A watch is dropped
	// before its first event.
	Lost bool
	// Closed drops the connection and carries nothing out.
	Closed bool
	// Delay passes before the answer; in a watch between the header and the first event.
	Delay time.Duration
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
	// Header is added to the answer.
	Header http.Header
	// Instead answers in place of the server, with what no API server or only some send.
	Instead http.HandlerFunc
}

// Server is an API server in memory.
type Server struct {
	*httptest.Server
	plain, tls, offline bool

	mu       sync.Mutex
	store    store
	changed  chan struct{} // closed by the next change
	cut      chan struct{} // closed when all watches end
	fault    func(Request) Fault
	hold     func(Request)
	observe  func(what string, object Object)
	handlers map[string]func(Request) (code int, body any) // by path
	served   []Resource
	unserved []Resource
	requests []*Request
	open     int // requests that have not ended
}

// Option says what a server is like.
type Option func(*Server)

// Plain makes the server answer with documents of discovery that are not aggregated.
func Plain(s *Server) { s.plain = true }

// TLS makes the server serve HTTPS.
func TLS(s *Server) { s.tls = true }

// Offline makes a server without a network. Clients use it as their transport, so that they run in
// virtual time.
func Offline(s *Server) { s.offline = true }

// Serving adds resources to discovery.
func Serving(resources ...Resource) Option {
	return func(s *Server) { s.served = append(s.served, resources...) }
}

// New starts a server that stops when the test ends. Its version is 0.
func New(t testing.TB, options ...Option) *Server {
	s := &Server{
		store:   store{objects: map[string]Object{}, base: map[string]Object{}, created: map[string]int{}},
		changed: make(chan struct{}), cut: make(chan struct{}), handlers: map[string]func(Request) (int, any){},
	}
	for _, option := range options {
		option(s)
	}
	switch {
	case s.offline:
		s.Server = &httptest.Server{URL: "http://server"}
		return s
	case s.tls:
		s.Server = httptest.NewTLSServer(s)
	default:
		s.Server = httptest.NewServer(s)
	}
	t.Cleanup(func() {
		s.CutWatches() // Close waits for them
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Break sets the function that picks the fault of each later request. The server calls it for one
// request at a time, and it must not call the server.
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

// Observe sets a function that is told of each later change as a watch is, before the request that
// makes it is answered. It must not call the server.
func (s *Server) Observe(change func(what string, object Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observe = change
}

// Handle answers the requests for a path with a function, as for reviews, which no server stores.
func (s *Server) Handle(path string, answer func(Request) (code int, body any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[path] = answer
}

// Requests returns the requests received, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, len(s.requests))
	for i, r := range s.requests {
		all[i] = *r
	}
	return all
}

// Answered returns how many requests of a method and path ("POST /api/...") were received and not
// held back.
func (s *Server) Answered(what string) (n int) {
	for _, r := range s.Requests() {
		if r.Method+" "+r.Path == what {
			n++
		}
	}
	return n
}

// Open returns how many requests have not ended.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// CutWatches ends every watch.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutWatches()
}

func (s *Server) cutWatches() {
	close(s.cut)
	s.cut = make(chan struct{})
}

// receive records a request, and returns its fault.
func (s *Server) receive(r *Request) (fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	if s.fault != nil {
		fault = s.fault(*r)
	}
	return fault
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	r := &Request{Method: in.Method, Path: in.URL.Path, Query: in.URL.Query(), Header: in.Header, At: time.Now()}
	if in.Body != nil {
		body, err := io.ReadAll(in.Body)
		if err != nil {
			return // the client went away
		}
		r.Body = body
	}
	s.mu.Lock()
	s.open++
	hold := s.hold
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}()
	if hold != nil {
		hold(*r)
	}
	s.serve(w, in, r, s.receive(r))
}

func (s *Server) serve(w http.ResponseWriter, in *http.Request, r *Request, fault Fault) {
	wait := func() {
		if fault.Delay == 0 {
			return
		}
		select {
		case <-time.After(fault.Delay):
		case <-in.Context().Done():
		}
	}
	maps.Copy(w.Header(), fault.Header)
	switch {
	case fault.Closed:
		panic(http.ErrAbortHandler)
	case fault.Instead != nil:
		wait()
		fault.Instead(w, in)
	case fault.Unserved:
		wait()
		s.unknown(w, r)
	case fault.Code != 0:
		wait()
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		refused := status(fault.Code, reasons[fault.Code], cmp.Or(fault.Message, "as the test asked"))
		if fault.Code != http.StatusGone || fault.Continue == "" {
			s.reply(w, r, fault.Code, refused)
			return
		}
		refused.Continue = fault.Continue
		s.reply(w, r, fault.Code, refused)
	case r.watches():
		s.watch(w, in, r, fault, wait)
	default:
		code, answer := s.answer(w.Header(), *r)
		if fault.Lost {
			panic(http.ErrAbortHandler)
		}
		if wait(); answer == nil && code == http.StatusNotFound {
			s.unknown(w, r)
			return
		}
		s.reply(w, r, code, answer)
	}
}

// answer carries a request out that is no watch. Without a body the resource is not served.
func (s *Server) answer(header http.Header, r Request) (code int, body any) {
	s.mu.Lock()
	handler := s.handlers[r.Path]
	s.mu.Unlock()
	if handler != nil {
		return handler(r) // it may call the server
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if code, body, is := s.discover(header, r); is {
		return code, body
	}
	if s.takenAway(r.Path) {
		return http.StatusNotFound, nil
	}
	switch r.Method {
	case http.MethodGet:
		return s.read(r)
	case http.MethodPost:
		return s.create(r)
	case http.MethodPut, http.MethodPatch:
		return s.change(r)
	case http.MethodDelete:
		return s.remove(r)
	default:
		return failure(http.StatusMethodNotAllowed, r.Method)
	}
}

// takenAway reports whether a path is of a resource that is served no longer.
func (s *Server) takenAway(path string) bool {
	return slices.ContainsFunc(s.unserved, func(r Resource) bool { return r.has(path) })
}

func (s *Server) note(r *Request, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Code = code
}

func (s *Server) reply(w http.ResponseWriter, r *Request, code int, body any) {
	s.note(r, code)
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(code)
	if code != http.StatusNotModified {
		_ = json.NewEncoder(w).Encode(body) // a client that went away is part of the tests
	}
}

// unknown answers a request for a path that is not served.
func (s *Server) unknown(w http.ResponseWriter, r *Request) {
	s.note(r, http.StatusNotFound)
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// reasons are the reasons of statuses that are not a success.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed: metav1.StatusReasonMethodNotAllowed, http.StatusConflict: metav1.StatusReasonConflict,
	http.StatusGone: metav1.StatusReasonExpired, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
}

func failure(code int, message string) (int, any) { return code, status(code, reasons[code], message) }

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
