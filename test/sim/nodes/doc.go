// Package nodes has the nodes and kubelets of a simulated cluster: what they do with pods, when their
// heartbeats come and stop, what administrators do with nodes, and what must hold when pods are evicted
// from a silent node or collected.
//
// Pods run, succeed or fail as their image says, which the packages above choose.
package nodes
