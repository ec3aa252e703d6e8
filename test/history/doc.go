// Package history tells the stories of bugs that Kubernetes has had and that a
// controller of ours could have too: what users saw, why, and what keeps Millrace
// from it. One file, one bug, named by its number in kubernetes/kubernetes.
//
// Each story is played twice: to a controller as upstream has or had it, where
// the bug must show, or the story would prove nothing; and to ours, where it must
// not. Both see the same changes of the same toy API server, in the same order
// and as late.
package history
