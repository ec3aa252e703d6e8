package watchertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/services/watcher/source"
)

// Direct carries requests to a server in the same process, without a network, so that a watcher
// runs in virtual time. It records when each resource was requested.
type Direct struct {
	s *Server

	mu  sync.Mutex
	cut bool // no request reaches the server
	// Unselective: the server refuses requests that select objects.
	Unselective bool
	asked       map[string][]time.Time
}

// Offline is a server without a network, and how a watcher reaches it.
func Offline() (*Server, *Direct) {
	s := newServer()
	s.Server = &httptest.Server{URL: "http://server"}
	return s, &Direct{s: s, asked: map[string][]time.Time{}}
}

// REST is the configuration of a client whose requests go through d.
func (d *Direct) REST() *rest.Config { return &rest.Config{Host: "http://server", Transport: d} }

// Source is the door of a watcher whose requests go through d.
func (d *Direct) Source(t *testing.T) *source.Source {
	t.Helper()
	return sourceOf(t, d.REST())
}

// Reachable lets requests through, or blocks them.
func (d *Direct) Reachable(yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = !yes
}

// Since returns when a resource was requested, as durations after from.
func (d *Direct) Since(resource string, from time.Time) (asked []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.asked[resource] {
		if !at.Before(from) {
			asked = append(asked, at.Sub(from))
		}
	}
	return asked
}

// RoundTrip implements [http.RoundTripper].
func (d *Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	resource := path.Base(r.URL.Path)
	d.asked[resource] = append(d.asked[resource], time.Now())
	cut, refused := d.cut, d.Unselective && r.URL.Query().Has("fieldSelector")
	d.mu.Unlock()
	if cut {
		return nil, errors.New("connection refused")
	}
	ctx, cancel := context.WithCancel(r.Context())
	a := &answer{header: http.Header{}, cancel: cancel}
	a.more = sync.NewCond(&a.mu)
	context.AfterFunc(ctx, func() { a.finish(context.Canceled) })
	go func() {
		if refused {
			fail(a, http.StatusBadRequest)
		} else {
			d.s.ServeHTTP(a, r.WithContext(ctx))
		}
		a.finish(io.EOF)
	}()
	if code := a.begun(); r.Context().Err() == nil {
		return &http.Response{StatusCode: code, Header: a.header, Body: a, Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
	}
	cancel()
	return nil, r.Context().Err()
}

// answer is a response that one goroutine writes while another reads it.
type answer struct {
	header http.Header
	cancel context.CancelFunc

	mu   sync.Mutex
	more *sync.Cond
	code int // 0: it has not begun
	text bytes.Buffer
	end  error
}

func (a *answer) change(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	a.more.Broadcast()
}

func (a *answer) finish(err error) {
	a.change(func() { a.code, a.end = cmp.Or(a.code, http.StatusOK), cmp.Or(a.end, err) })
}

// begun waits until the response has a status.
func (a *answer) begun() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.code == 0 {
		a.more.Wait()
	}
	return a.code
}

// Header implements [http.ResponseWriter], as do WriteHeader and Write.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader begins the response.
func (a *answer) WriteHeader(code int) { a.change(func() { a.code = cmp.Or(a.code, code) }) }

// Write adds to the response.
func (a *answer) Write(p []byte) (int, error) {
	a.change(func() {
		a.code = cmp.Or(a.code, http.StatusOK)
		a.text.Write(p)
	})
	return len(p), nil
}

// Flush implements [http.Flusher].
func (a *answer) Flush() {}

// Read implements [io.ReadCloser], as does Close.
func (a *answer) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.text.Len() == 0 && a.end == nil {
		a.more.Wait()
	}
	if a.text.Len() > 0 {
		return a.text.Read(p)
	}
	return 0, a.end
}

// Close ends the request at the server.
func (a *answer) Close() error {
	a.cancel()
	return nil
}
