package jaeger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// answer is the API's response for a trace: spans in OTLP's JSON form, reduced to the
// used fields. Ids are hexadecimal, and large numbers are strings.
type answer struct {
	Result struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	} `json:"result"`
}

type resourceSpans struct {
	Resource struct {
		Attributes []keyValue `json:"attributes"`
	} `json:"resource"`
	ScopeSpans []struct {
		Spans []wireSpan `json:"spans"`
	} `json:"scopeSpans"`
}

type wireSpan struct {
	TraceID      string      `json:"traceId"`
	SpanID       string      `json:"spanId"`
	ParentSpanID string      `json:"parentSpanId"`
	Name         string      `json:"name"`
	Kind         int         `json:"kind"`
	Start        nanoseconds `json:"startTimeUnixNano"`
	End          nanoseconds `json:"endTimeUnixNano"`
	Attributes   []keyValue  `json:"attributes"`
	Links        []wireLink  `json:"links"`
	Status       struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
}

type wireLink struct {
	TraceID    string     `json:"traceId"`
	SpanID     string     `json:"spanId"`
	Attributes []keyValue `json:"attributes"`
}

type keyValue struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// nanoseconds is a time since 1970, as a string or a number.
type nanoseconds int64

// UnmarshalJSON accepts both forms.
func (n *nanoseconds) UnmarshalJSON(text []byte) error {
	value, err := strconv.ParseInt(string(bytes.Trim(text, `"`)), 10, 64)
	if err != nil {
		return fmt.Errorf("read a time in nanoseconds: %w", err)
	}
	*n = nanoseconds(value)
	return nil
}

func (n nanoseconds) time() time.Time { return time.Unix(0, int64(n)) }

// spanKinds and failed are OTLP's numbers.
var spanKinds = []string{"", "internal", "server", "client", "producer", "consumer"}

const failed = 2

func (a answer) spans() []*Span {
	var all []*Span
	for _, r := range a.Result.ResourceSpans {
		service := flatten(r.Resource.Attributes)["service.name"]
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				all = append(all, s.span(service))
			}
		}
	}
	return all
}

func (w wireSpan) span(service string) *Span {
	s := &Span{
		ID: w.SpanID, Parent: w.ParentSpanID, Name: w.Name, Service: service, Start: w.Start.time().UTC(),
		Duration: w.End.time().Sub(w.Start.time()), Attributes: flatten(w.Attributes),
		Failed: w.Status.Code == failed, Message: w.Status.Message, trace: w.TraceID,
	}
	if strings.Trim(s.Parent, "0") == "" {
		s.Parent = ""
	}
	if w.Kind > 0 && w.Kind < len(spanKinds) {
		s.Kind = spanKinds[w.Kind]
	}
	for _, l := range w.Links {
		s.Links = append(s.Links, Link{Trace: l.TraceID, Span: l.SpanID, Attributes: flatten(l.Attributes)})
	}
	return s
}

// flatten converts every attribute to text: strings and numbers as they are, lists as
// JSON.
func flatten(attributes []keyValue) map[string]string {
	if len(attributes) == 0 {
		return nil
	}
	flat := make(map[string]string, len(attributes))
	for _, a := range attributes {
		var typed map[string]json.RawMessage // one entry: the type and the value
		if json.Unmarshal(a.Value, &typed) != nil {
			continue
		}
		for _, value := range typed {
			var text string
			if json.Unmarshal(value, &text) != nil {
				text = string(value)
			}
			flat[a.Key] = text
		}
	}
	return flat
}
