// Package observability starts the services of Millrace on a real control plane and
// looks at what an operator sees of them: that users of kube-controller-manager find
// the metrics that they know, that docs/metrics.md has every metric there is, and
// that their number stays what it is however many objects there are.
//
// That rules and dashboards name only metrics of that page, and that alerts fire when
// they should, is tested in the module rules beside it, which needs Prometheus' own
// libraries and is outside the workspace for that reason.
package observability
