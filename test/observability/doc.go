// Package observability starts the services of Millrace on a real control plane and checks what an operator
// sees: users of kube-controller-manager find the metrics that they know, docs/metrics.md lists every metric,
// and the number of series does not grow with the number of objects.
//
// The module rules beside it tests that rules and dashboards name only metrics of that page, and that alerts
// fire when they should. It needs Prometheus' own libraries and is outside the workspace for that reason.
package observability
