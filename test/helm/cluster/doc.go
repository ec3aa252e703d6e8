// Package cluster installs the chart on a real API server, with the library of Helm: what it
// makes is taken as it is meant, changes with an upgrade, comes back with a rollback, and is gone
// when it is uninstalled. No pod runs.
package cluster
