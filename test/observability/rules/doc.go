// Package rules tests deployments/observability with Prometheus' own parser and engine: rules and dashboards
// parse, and name only metrics and labels that docs/metrics.md lists; every alert fires when it should, is
// silent otherwise, and has its entry in the runbook.
package rules
