// Package embedded runs a NATS server with JetStream inside a process ([Serve]), alone or as one of a cluster.
//
//   - A data directory is used by one process, and by one kind of server: a server of a cluster would delete the
//     streams of one that stood alone.
//   - A server that was killed removes a whole stream if one of its packed blocks is damaged. So [Serve] sets
//     those blocks aside before the server starts. It also removes damaged messages from the other blocks,
//     since one of them can keep the server from starting at all (package datadir).
//   - When the store is almost full, the server bounds its largest streams (package space).
//   - Other processes log in with accounts and users ([Options].Accounts). On a server without accounts there are
//     [MainUser], who may do everything, and [GuestUser], who may only read.
//
// Clients, also those in this process, use package stream.
package embedded
