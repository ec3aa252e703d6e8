// Package report has what the processes of Millrace report about themselves and about each other:
// that a writer is alive and which turns it has in flight ([Heartbeat]), which controllers stand
// still and why ([Report], [Stall]), why one key waits ([KeyReport]), that a stream is damaged
// ([Damage]), and how a shadow's turns compare with the writes of kube-controller-manager
// ([Finding]).
//
// No decision of a controller rests on a report. Everything here is a plain value.
package report
