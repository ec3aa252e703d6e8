// Package takeover moves controllers from kube-controller-manager to Millrace and back, with a
// person's own credentials: it checks that the move is safe, writes the assignment to the Lease of
// Leader Migration, and follows what becomes of it. The process that takes the Lease is package
// election's.
package takeover
