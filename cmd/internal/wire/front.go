package wire

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// Trouble is the fault that a front injects into requests, except for watches. The zero
// value is no fault.
type Trouble struct {
	// Every selects the affected requests: 1 all, 3 every third; 0 none.
	Every int
	// Lose passes the request on and drops the response, so that the client does not
	// know its effect.
	Lose bool
	// Code is the status code with which the front answers instead of passing the request on.
	Code int
	// RetryAfter is the header Retry-After in seconds; 0 leaves it out.
	RetryAfter int
}

// errLost ends a dropped response.
var errLost = errors.New("the answer was lost on purpose")

// Front is an HTTPS reverse proxy.
type Front struct {
	listener net.Listener
	server   *http.Server

	mu      sync.Mutex
	trouble Trouble
	seen    int // requests since the trouble began
	met     int // all requests affected by trouble
}

// NewFront opens a front on a free port of 127.0.0.1 for the server at target. It passes
// requests on by transport, with transport's credentials for every client. certificate is
// the front's own.
//
// Errors: no port can be listened on, or the target is no URL.
func NewFront(target string, transport http.RoundTripper, certificate tls.Certificate) (*Front, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("open a front for %s: %w", target, err)
	}
	f := &Front{}
	if f.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("open a front for %s: %w", target, err)
	}
	silence := log.New(io.Discard, "", 0) // its errors are injected
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: f.lose,
		// A dropped response, or one that the server never gave, ends the stream like a
		// broken connection.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     silence,
	}
	f.server = &http.Server{
		Handler: f.refuse(proxy), ErrorLog: silence, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = f.server.ServeTLS(f.listener, "", "") }() // ends with Close
	return f, nil
}

// Address is the address on which the front listens.
func (f *Front) Address() string { return f.listener.Addr().String() }

// Set begins trouble, or ends it with the zero value.
func (f *Front) Set(t Trouble) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trouble, f.seen = t, 0
}

// Met is how many requests trouble has affected.
func (f *Front) Met() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.met
}

// Close closes the front and every connection to it.
func (f *Front) Close() error { return f.server.Close() }

// meets is whether trouble affects a request. It counts each request once: before it is
// passed on, or when its response has arrived.
func (f *Front) meets(r *http.Request, lose bool) (t Trouble, met bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t = f.trouble
	if t.Every == 0 || t.Lose != lose || r.URL.Query().Has("watch") {
		return t, false
	}
	f.seen++
	if f.seen%t.Every != 0 {
		return t, false
	}
	f.met++
	return t, true
}

// refuse answers affected requests instead of passing them on, as the API server does under
// load or when its storage fails.
func (f *Front) refuse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, met := f.meets(r, false)
		if !met {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if t.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(t.RetryAfter))
		}
		w.WriteHeader(t.Code)
		reason := map[int]string{http.StatusTooManyRequests: "TooManyRequests", http.StatusServiceUnavailable: "ServiceUnavailable"}[t.Code]
		if reason == "" {
			reason = "InternalError"
		}
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"trouble on purpose","reason":%q,"details":{"retryAfterSeconds":%d},"code":%d}`,
			reason, t.RetryAfter, t.Code)
	})
}

func (f *Front) lose(response *http.Response) error {
	if _, met := f.meets(response.Request, true); met {
		return errLost
	}
	return nil
}
