// Package shadow compares a real kube-controller-manager with Millrace's controllers in shadow on a real
// control plane: both must agree, the comparison must detect a wrong controller, and Millrace may write
// nothing.
package shadow
