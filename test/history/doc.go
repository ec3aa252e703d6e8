// Package history replays bugs that Kubernetes had and that a Millrace controller could have too: what users
// saw, the cause, and the rule with which Millrace avoids it. Each file is one bug, named by its number in
// kubernetes/kubernetes.
//
// Each test plays its scenario twice: on a controller as upstream has or had it, where the bug must show,
// because otherwise the test would prove nothing; and on ours, where it must not show. Both see the same
// changes of the same toy API server, in the same order and with the same delays.
package history
