// Package datadir has the data directory of an embedded NATS server while the server does not run: its lock
// ([Acquire]), the streams in it ([Store]), and the disk that it is on ([Space]).
//
// Before a server starts, a [Store] removes damaged messages and sets damaged blocks aside. One of them could
// keep the server from starting, or make it delete a whole stream. What was removed stays in the folder
// "damaged", where an operator can inspect it.
package datadir
