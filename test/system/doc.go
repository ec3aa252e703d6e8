// Package system holds the tests of the whole: the real program beside a real
// etcd, kube-apiserver and kube-scheduler, with simulated nodes and JetStream on
// disk.
//
// The control plane is started once for the package, by the first test that asks
// for it, and its programs are built on first use. Each test has namespaces of its
// own. Top-level tests run one after the other, because only one Millrace at a time
// may act on a cluster; the parts of a test run side by side.
package system
