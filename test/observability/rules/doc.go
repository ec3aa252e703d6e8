// Package rules holds what deployments/observability has against Prometheus' own
// parser and engine: rules and dashboards parse, name only metrics and labels that
// docs/metrics.md lists, every alert fires when it should and is silent otherwise, and
// has its entry in the runbook.
package rules
