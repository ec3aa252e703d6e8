// Package conn is the connection to a bus that all parts of package stream share: the client of NATS and of
// JetStream, what ends a request that the server refuses, where a stream is looked up, and what is counted.
//
// A [Conn] is made with [New]. Package stream sets its clients when it has dialed. Readers ask it for two signals:
// [Conn.MayHaveMissed] is closed when deliveries may have been lost, and [Conn.Closed] when the bus is closed.
package conn
