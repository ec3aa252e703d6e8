// Package telemetry samples traces and exports their spans. It is the only package that
// knows OpenTelemetry's SDK; package pkg/events/trace defines the spans.
//
// Without a collector's address there are no traces, and no cost. The address comes
// from a flag, from the file of --tracing-config-file, or from OpenTelemetry's standard
// variables (OTEL_EXPORTER_OTLP_ENDPOINT and the like, which also give certificates and
// headers).
//
// The export never blocks the services: if the queue is full, a span is dropped and
// counted, and the export of the remaining spans when the process stops is limited to a
// few seconds.
package telemetry
