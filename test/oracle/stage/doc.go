// Package stage lets both controllers act on one fake API server ([Stage]), with the preconditions, finalizers
// and refusals of the simulation.
//
// A [Life] compares what is there after each of several chapters, in which users and nodes act. A [Rest]
// compares the ends on an API server that refuses some writes ([Refusal]). An [Actor] runs our controller: turns,
// plans of the writer, outcomes, wakes and back-off.
package stage
