// Package workloads compares the controllers of Deployments, ReplicaSets, ReplicationControllers, StatefulSets,
// DaemonSets, Jobs, CronJobs, groups of pods, and the pod garbage collector with upstream's.
package workloads
