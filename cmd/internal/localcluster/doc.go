// Package localcluster runs a real Kubernetes control plane on this machine:
// etcd, kube-apiserver and kube-scheduler built from their Go modules, nodes
// simulated by kwok, and, only where asked for, kube-controller-manager.
//
// Every program is built once into a cache (see package binaries), keyed by the
// version that test/cluster/go.mod pins. All programs listen on free ports of
// 127.0.0.1, with one exception: with [Options].E2E the simulated pods answer
// HTTP on addresses of this machine, which needs root and must not be used on a
// machine whose ports are open to the network.
//
// Processes are ended by their ids, in the reverse order of their start, and die
// with the process that started them unless [Options].Detached.
package localcluster
