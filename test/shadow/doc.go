// Package shadow holds a real kube-controller-manager and Millrace's controllers in
// shadow beside each other on a real control plane: they must agree, a controller
// that is wrong must be found out, and nothing of ours may be written.
package shadow
