// Package telemetry decides what becomes of spans: which traces are sampled, and
// where they go. It is the only package that knows OpenTelemetry's SDK; what a span
// is, pkg/events/trace knows.
//
// Without a collector's address there are no traces, and no cost. The address comes
// from a flag, from the file of --tracing-config-file, or from the variables that
// OpenTelemetry has standardised (OTEL_EXPORTER_OTLP_ENDPOINT and its like, which
// also give certificates and headers).
//
// Nothing here ever holds up the work: a span that finds the queue full is dropped
// and counted, and what is left when the process stops has a few seconds.
package telemetry
