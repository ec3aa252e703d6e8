package jaeger

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/millrace/millrace/pkg/events/trace"
)

// about says what a span was about, as far as its attributes tell: the object and
// its version, who changed it or why, what was asked of the API server, and what
// came of it.
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

// object names the object that a span was about, and its version.
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
