// Package events is the vocabulary of Millrace: the messages on the bus.
//
// There are four kinds of messages, each with its own streams:
//
//   - a [Delta], made by the watcher: "this object is now so", "it is gone",
//     "everything up to here has been seen";
//   - a [Turn], made by the reconcilers: one question to one controller and
//     its answer, with every command that follows from it;
//   - an [Outcome], made by the writer: what became of each command of a turn;
//   - a [Wake], made by the reconcilers: "ask again at this moment".
//
// An example: a user changes a Deployment. The watcher sees the change and publishes a Delta. A
// reconciler folds it into its memory, asks the deployment controller, and publishes the Turn:
// "too few replicas, so create this ReplicaSet". The writer reads the Turn, creates the
// ReplicaSet with the controller's own identity, and publishes the Outcome. The new ReplicaSet
// comes back through the watcher as the next Delta, and so on until the controller has nothing
// left to do.
//
// Everything here is a plain value. This package and the ones below it have no client, context,
// clock or goroutine; [Message] is the wire form of a value, and only package stream talks to
// NATS.
package events
