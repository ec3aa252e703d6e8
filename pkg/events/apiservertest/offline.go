package apiservertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// RoundTrip implements [http.RoundTripper]: it carries a request to the server without a network.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	a := &answer{header: http.Header{}, cancel: cancel}
	a.more = sync.NewCond(&a.mu)
	context.AfterFunc(ctx, func() { a.finish(context.Canceled) })
	go func() {
		end := errDropped // unless it is answered
		defer func() {
			if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
				panic(cause)
			}
			a.finish(end)
		}()
		s.ServeHTTP(a, r.WithContext(ctx))
		end = io.EOF
	}()
	code, err := a.begun()
	if r.Context().Err() != nil {
		err = r.Context().Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &http.Response{StatusCode: code, Header: a.header, Body: a, Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
}

// Client returns a client of the server.
func (s *Server) Client() *http.Client {
	if s.offline {
		return &http.Client{Transport: s}
	}
	return s.Server.Client()
}

// errDropped is the error of a connection that a fault drops.
var errDropped = errors.New("connection refused")

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
	a.change(func() { a.end = cmp.Or(a.end, err) })
}

// begun waits until the response has a status, or is none.
func (a *answer) begun() (code int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.code == 0 && a.end == nil {
		a.more.Wait()
	}
	if a.code == 0 && a.end != io.EOF {
		return 0, a.end
	}
	return cmp.Or(a.code, http.StatusOK), nil
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
