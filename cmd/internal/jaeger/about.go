package jaeger

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/millrace/millrace/pkg/events/trace"
)

// about describes a span by its attributes: the object and its version, the author or the
// reason of the change, the request to the API server, and its result.
func about(s *Span) []string {
	get := func(key attribute.Key) string { return s.Attributes[string(key)] }
	var out []string
	add := func(text string) {
		if text != "" {
			out = append(out, text)
		}
	}
	add(object(get))
	if manager := get(trace.Manager); manager != "" {
		add("by " + manager)
	}
	add(get(trace.Because))
	if attempt := get(trace.Attempt); attempt != "" && attempt != "1" {
		add("attempt " + attempt)
	}
	add(get(semconv.HTTPResponseStatusCodeKey))
	add(get(trace.Outcome))
	if cut := get(trace.Cut); cut != "" {
		add("cut off here: " + cut)
	}
	return out
}

// object is the object of a span, with its version.
func object(get func(attribute.Key) string) string {
	name := get(trace.ObjectName)
	if namespace := get(semconv.K8SNamespaceNameKey); namespace != "" && name != "" {
		name = namespace + "/" + name
	}
	text := strings.TrimSpace(get(trace.Kind) + " " + name)
	if op := get(trace.Op); op == "gone" {
		text += " gone"
	}
	if version := get(trace.ResourceVersion); version != "" {
		text += " @" + version
	}
	return text
}
