// Package streams has the simulated bus: the logs of kinds, which watchers append to and reconcilers
// read, and the books of controllers, each with the turns of the controller, their outcomes, and wakes.
// A consumer redelivers a message until it is answered.
//
// The bus can lose what a real one may lose: the last messages of a stream, the whole stream, the answer
// to a delivery, a consumer with its count of attempts. Its contents can be read like an archive, so
// that tools that read the past can replay a world. It passes the conformance suite of every bus in what it
// models; its test lists what it does not model, with reasons.
//
// The package knows nothing of worlds: time comes from a function, and processes and faults are calls of
// the package above.
package streams
