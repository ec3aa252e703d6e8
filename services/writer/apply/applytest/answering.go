package applytest

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/millrace/millrace/services/writer/apply"
)

// Answering is a transport that answers the requests about objects whose URL has a text, and
// passes on the others. It records the requests.
type Answering struct {
	At     string
	Code   int    // 0 passes on all requests
	Kind   string // the content type; empty: JSON
	Body   string
	Header http.Header

	through http.RoundTripper

	mu sync.Mutex
	// Asked are the requests, in order.
	Asked []*http.Request
}

// RoundTrip is [http.RoundTripper].
func (a *Answering) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.Asked = append(a.Asked, r)
	a.mu.Unlock()
	if a.Code == 0 || !OfObjects(r) || !strings.Contains(r.URL.String(), a.At) {
		return a.through.RoundTrip(r)
	}
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if a.Kind != "" {
		header.Set("Content-Type", a.Kind)
	}
	for key, values := range a.Header {
		header[key] = values
	}
	return &http.Response{StatusCode: a.Code, Header: header, Body: io.NopCloser(strings.NewReader(a.Body)), Request: r}, nil
}

// OfObjects distinguishes requests about objects from those of discovery.
func OfObjects(r *http.Request) bool { return strings.Count(r.URL.Path, "/") > 3 }

// By makes a door use the transport.
func (a *Answering) By(c *apply.Config) {
	c.REST.WrapTransport = func(through http.RoundTripper) http.RoundTripper {
		a.through = through
		return a
	}
}
