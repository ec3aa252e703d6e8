package jaeger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNoTrace: Jaeger has no span of the trace, because none has arrived yet, or the trace
// was not sampled, or it has expired.
var ErrNoTrace = errors.New("no such trace")

// largest bounds a response, in bytes: enough for a trace of some hundred thousand spans.
const largest = 1 << 29

// Client is a client of one Jaeger.
type Client struct {
	base *url.URL
	http *http.Client
}

// New makes a client for Jaeger's query API at an address, such as
// http://127.0.0.1:16686. It does not connect yet.
func New(address string) (*Client, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%q is no address of a Jaeger, such as http://127.0.0.1:16686", address)
	}
	return &Client{base: base, http: &http.Client{}}, nil
}

// Trace reads a trace by its id, 32 hexadecimal digits.
//
// Errors: [ErrNoTrace]; Jaeger does not answer, or the server is not Jaeger.
func (c *Client) Trace(ctx context.Context, id string) (*Trace, error) {
	var found answer
	if err := c.get(ctx, "api/v3/traces/"+url.PathEscape(id), &found); err != nil {
		return nil, fmt.Errorf("read trace %s: %w", id, err)
	}
	t, err := grow(id, found.spans())
	if err != nil {
		return nil, fmt.Errorf("read trace %s: %w", id, err)
	}
	return t, nil
}

// Find reads the traces, at most limit, in which a service has a span with a name that
// began since a moment; none is no error.
//
// Errors: as those of Trace.
func (c *Client) Find(ctx context.Context, service, span string, since time.Time, limit int) ([]*Trace, error) {
	query := url.Values{
		"query.service_name": {service}, "query.operation_name": {span}, "query.num_traces": {strconv.Itoa(limit)},
		"query.start_time_min": {since.UTC().Format(time.RFC3339Nano)}, "query.start_time_max": {time.Now().UTC().Format(time.RFC3339Nano)},
	}
	var found answer
	if err := c.get(ctx, "api/v3/traces?"+query.Encode(), &found); err != nil && !errors.Is(err, ErrNoTrace) {
		return nil, fmt.Errorf("find traces with %q of %s: %w", span, service, err)
	}
	apart := map[string][]*Span{}
	for _, s := range found.spans() {
		apart[s.trace] = append(apart[s.trace], s)
	}
	var traces []*Trace
	for _, id := range slices.Sorted(maps.Keys(apart)) {
		t, err := grow(id, apart[id])
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	return traces, nil
}

// Services are the names of all services with spans.
func (c *Client) Services(ctx context.Context) ([]string, error) {
	var found struct {
		Services []string `json:"services"`
	}
	if err := c.get(ctx, "api/v3/services", &found); err != nil {
		return nil, fmt.Errorf("ask for services: %w", err)
	}
	return found.Services, nil
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	path, query, _ := strings.Cut(path, "?")
	address := c.base.JoinPath(path)
	address.RawQuery = query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("no Jaeger answers: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, largest))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base.Host, err)
	}
	if response.StatusCode == http.StatusOK && json.Unmarshal(body, into) == nil {
		return nil
	}
	return c.refused(response, body)
}

// refused is the error of a response that is no success.
func (c *Client) refused(response *http.Response, body []byte) error {
	var reason struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	err := json.Unmarshal(body, &reason)
	switch {
	case err == nil && response.StatusCode == http.StatusNotFound && reason.Error.Message != "":
		return ErrNoTrace
	case err == nil && reason.Error.Message != "":
		return fmt.Errorf("jaeger at %s refuses: %s", c.base.Host, strings.TrimSpace(reason.Error.Message))
	default:
		return fmt.Errorf("what answers at %s (%s) is no query API of a Jaeger; that is on port 16686 unless it was changed", c.base.Host, response.Status)
	}
}
