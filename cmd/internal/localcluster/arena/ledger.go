package arena

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Ledger counts the work of an API server since its start, from its metrics.
type Ledger struct {
	// Processor is the used CPU time, in seconds.
	Processor float64
	// Requests is the number of answered requests by verb, resource and code, such as
	// "PATCH deployments/status 200". It has no watches, because they last.
	Requests map[string]int
	// Told is how many events it has sent to watches.
	Told int
}

// Ledger reads the API server's metrics.
func (c *Client) Ledger(ctx context.Context) (Ledger, error) {
	text, err := c.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return Ledger{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return ledgerOf(text)
}

func ledgerOf(text []byte) (Ledger, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return Ledger{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	l := Ledger{Requests: map[string]int{}}
	for _, m := range families["process_cpu_seconds_total"].GetMetric() {
		l.Processor += m.GetCounter().GetValue()
	}
	for _, m := range families["apiserver_watch_events_total"].GetMetric() {
		l.Told += int(m.GetCounter().GetValue())
	}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		if what, ok := requestOf(m.GetLabel()); ok {
			l.Requests[what] += int(m.GetCounter().GetValue())
		}
	}
	return l, nil
}

// requestOf is the name of a request in Requests; false for a watch.
func requestOf(pairs []*dto.LabelPair) (string, bool) {
	labels := map[string]string{}
	for _, p := range pairs {
		labels[p.GetName()] = p.GetValue()
	}
	if labels["verb"] == "WATCH" {
		return "", false
	}
	resource := labels["resource"]
	if sub := labels["subresource"]; sub != "" {
		resource += "/" + sub
	}
	return strings.Join([]string{labels["verb"], resource, labels["code"]}, " "), true
}

// Since is the difference from an earlier ledger of the same server.
func (l Ledger) Since(earlier Ledger) Ledger {
	since := Ledger{Processor: l.Processor - earlier.Processor, Told: l.Told - earlier.Told, Requests: map[string]int{}}
	for what, n := range l.Requests {
		if n -= earlier.Requests[what]; n != 0 {
			since.Requests[what] = n
		}
	}
	return since
}

// Asked is the total number of requests.
func (l Ledger) Asked() int {
	sum := 0
	for _, n := range l.Requests {
		sum += n
	}
	return sum
}

// Writes is the number of write requests, without the heartbeats of nodes and components, and
// without Events.
func (l Ledger) Writes() int {
	sum := 0
	for what, n := range l.Requests {
		if changes(what) {
			sum += n
		}
	}
	return sum
}

func changes(what string) bool {
	fields := strings.SplitN(what, " ", 3)
	resource, _, _ := strings.Cut(fields[1], "/")
	return slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, fields[0]) &&
		!slices.Contains([]string{"leases", "nodes", "events", "tokenreviews", "subjectaccessreviews"}, resource)
}

// String lists the requests, the most frequent first.
func (l Ledger) String() string {
	order := slices.SortedFunc(maps.Keys(l.Requests), func(a, b string) int {
		if d := l.Requests[b] - l.Requests[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var lines []string
	for _, what := range order {
		lines = append(lines, fmt.Sprintf("%d %s", l.Requests[what], what))
	}
	return strings.Join(lines, ", ")
}
