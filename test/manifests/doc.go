// Package manifests checks the objects that kubectl apply sends for each way to install Millrace: it renders
// the kustomizations with their patches, and checks the result against rules. A test breaks each rule once,
// to show that the check notices it.
package manifests
