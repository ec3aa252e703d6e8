// Package helm holds the chart deployments/helm/millrace: what it renders is what the
// kustomizations of deployments apply, object by object; values that cannot be meant are refused;
// and its roles are those that millrace rbac prints for the same controllers. It is outside of
// the workspace, since Helm's library needs a newer Kubernetes API than the services.
package helm
