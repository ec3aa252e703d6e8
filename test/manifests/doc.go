// Package manifests judges what kubectl apply would send for each way to install Millrace:
// kustomizations are rendered, with the patches in them, and what comes out is held to rules.
// Each rule is broken once, to see that it is noticed.
package manifests
