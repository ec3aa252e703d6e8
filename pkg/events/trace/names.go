package trace

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// SchemaURL is the version of the semantic conventions that spans follow.
const SchemaURL = semconv.SchemaURL

// The attributes of spans that the semantic conventions do not name.
const (
	// Of an object: its kind in the form of the bus ("deployments.apps"), and what identifies a
	// version of it.
	Kind            = attribute.Key("millrace.kind")
	ObjectName      = attribute.Key("k8s.object.name")
	UID             = attribute.Key("k8s.object.uid")
	ResourceVersion = attribute.Key("k8s.object.resource_version")
	// Of a delta: its op, and the field manager that made the change.
	Op      = attribute.Key("millrace.op")
	Manager = attribute.Key("millrace.manager")
	// Of a turn.
	Controller = attribute.Key("millrace.controller")
	Lane       = attribute.Key("millrace.lane")
	Because    = attribute.Key("millrace.because")
	Commands   = attribute.Key("millrace.commands")
	// Attempt counts the turns of a key that followed a failed one, from 1.
	Attempt = attribute.Key("millrace.attempt")
	// Of a message: its sequence in its stream, and the number of its deliveries.
	Sequence = attribute.Key("millrace.stream.sequence")
	Delivery = attribute.Key("millrace.delivery.attempt")
	// Of a request: its command's position in the turn, and the id of the request
	// in the API server's audit log.
	Command = attribute.Key("millrace.command")
	AuditID = attribute.Key("k8s.audit_id")
	// Outcome is the result: a status of a command, or "overtaken", "nothing", "parked".
	Outcome = attribute.Key("millrace.outcome")
	// Cut says which limit ended the trace before this span.
	Cut = attribute.Key("millrace.cut")
	// Replay marks spans of a replay: their operations have not happened again.
	Replay = attribute.Key("millrace.replay")
	// LinkTo says what a link refers to: "cause", "previous version", "noted on the object",
	// "recorded".
	LinkTo = attribute.Key("millrace.link")
)

// secrets is the kind whose names are left out.
const secrets kinds.Name = "secrets"

// object describes an object, or a key.
func object(ref events.Ref) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	if ref.Kind != "" {
		attrs = append(attrs, Kind.String(string(ref.Kind)))
	}
	if ref.Namespace != "" {
		attrs = append(attrs, semconv.K8SNamespaceName(ref.Namespace))
	}
	if ref.Kind != secrets {
		attrs = append(attrs, ObjectName.String(ref.Name))
	}
	return attrs
}

// sends and processes describe a message that is stored or consumed.
func sends(stream string) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemKey.String("nats"), semconv.MessagingOperationTypeSend,
		semconv.MessagingOperationName("send"), semconv.MessagingDestinationName(stream),
	}
}

func processes(stream, consumer string) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemKey.String("nats"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingOperationName("process"), semconv.MessagingDestinationName(stream),
		semconv.MessagingConsumerGroupName(consumer),
	}
}
