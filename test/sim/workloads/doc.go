// Package workloads has what users do with Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs,
// CronJobs, autoscalers and disruption budgets, and what users fear of their controllers.
//
// A rule is of one of three forms. A function ...Judged reads the view that a decision rests on, and its
// commands: too many pods are created, a ready one is deleted before one that is not. A function with a
// Guard reads the real state whenever an object changes or a request is made. A function that returns an
// error reads a world at rest, which must be as the specs ask.
package workloads
