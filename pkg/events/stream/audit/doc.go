// Package audit judges whether an audit may rest on the record of a bus: from the facts that were seen of its
// servers and streams ([Facts]), it lists each way in which acknowledged messages may still be lost, with its
// cure ([Shortcoming]). It has the words for what a bus is like ([Inspection]), and asks the monitoring endpoints
// of NATS servers ([Monitor]), the only place where a server says when it syncs.
//
// Package stream collects the facts.
package audit
