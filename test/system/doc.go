// Package system tests the whole: the real program beside a real etcd, kube-apiserver and kube-scheduler,
// with simulated nodes and JetStream on disk.
//
// The tests start control planes on demand, whose programs are built on first use. Each test has namespaces
// of its own, and a control plane to itself while it runs, because only one Millrace at a time may act on a
// cluster.
package system
