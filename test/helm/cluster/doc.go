// Package cluster installs the chart on a real API server with Helm's library. The API server accepts the
// objects unchanged; an upgrade changes them, a rollback restores them, and an uninstall deletes them. No pod
// runs.
package cluster
