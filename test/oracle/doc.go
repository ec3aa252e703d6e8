// Package oracle compares our decisions with those of upstream's own controllers, which run here on a fake
// client in virtual time. The packages below it have the comparisons. Its own tests compare our tables of
// feature gates, built-in kinds and roles with Kubernetes'.
//
// Most comparisons are one question: both see the same random but possible state of the cluster, a world.
// There are three kinds:
//
//   - frozen: one sync of upstream's and one decision of ours, in a world that stands still
//   - settle: both run until they want nothing more, and the ends are compared
//   - stage: both act on an API server on which users and nodes act, too, and which may refuse requests
//
// Both sides are converted to one form (effect) and must be equal. Each difference that a comparison leaves
// out, or that no world has, has a name in exemption, and a comment where it is left out.
//
// The worlds are in one package for each group of controllers: workloads, policy, storage, network, nodes,
// access, devices, metadata. Each has the controllers of both sides and what their comparison leaves out; its
// tests generate the worlds, with what oracletest has for all. Each is a package of its own, so that its tests
// build and run alone. Groups import none of each other.
package oracle
