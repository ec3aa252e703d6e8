// Package helm tests the chart deployments/helm/millrace. It renders the objects that the kustomizations of
// deployments apply; it refuses values that make no sense; and its roles are those that millrace rbac prints
// for the same controllers. The package is outside the workspace, because Helm's library needs a newer
// Kubernetes API than the services.
package helm
