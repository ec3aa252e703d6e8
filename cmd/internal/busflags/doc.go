// Package busflags has the flags of the bus: [Options] of a connection to NATS, with retention and replicas, and
// [Server] of the NATS server embedded in the process, with its users, TLS and store. It also has the parts of a
// process that look after the bus: the audit of its settings, room in its store, and the provisioner.
package busflags
