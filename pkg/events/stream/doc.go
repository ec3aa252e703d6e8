// Package stream is the only door to JetStream: it implements package bus with nats.go, on servers elsewhere
// or on one in this process (package embedded).
//
// Streams, by kind and by controller:
//
//	EV_<kind>             every delta, kept by age and size; one fenced publisher
//	TURN_<controller>     turns, kept by age and size
//	OUTCOME_<controller>  outcomes, likewise
//	WAKE                  wakes, set and fired, one of each per key
//
// [Bus] is what users see. Its parts are packages, which share one connection (internal/conn):
//
//	internal/follow     reads a stream in order, and goes on for ever
//	internal/work       consumes a stream through a durable consumer that workers share
//	internal/passage    reads a bounded part of a stream, through a consumer or from a backup
//	internal/lookup     finds single messages
//	internal/listing    lists what a bus has: kinds, controllers, consumers
//	internal/provision  creates streams and consumers, or has the provisioner create them
//	internal/restore    imports a stream
//
// Other packages below it have the rest: settings (what streams and consumers must be like), publish (storing
// messages), delivery (what a consumer is delivered), guest (readers without consumers), quota (how many consumers a
// user may have), space (room in the store), natserr (what errors mean) and audit (whether an audit may rest on a bus).
//
// What holds the design together:
//
//   - A log has one publisher. Each message carries the predicted sequence of the
//     message before it, so the publisher can pipeline messages, and the server still
//     refuses a second publisher or a lost message at once ([bus.Appender]).
//   - A reader of a stream is an ephemeral consumer. The reader creates a new one, from the
//     next sequence, whenever there is any doubt: a reconnect, a missing heartbeat, a hole
//     in the consumer's own count (never in the stream's: expired marks leave holes there).
//   - In one process with the server, readers of logs and outcomes get what is stored from its
//     publishers (package handover); their consumers are paused, and keep their positions.
//   - A reader that wants most of a stream, and has the right, gets it from a backup
//     ([Options].Backups): the same messages, packed together in large pieces. When the
//     backup fails, a consumer delivers the rest.
//   - No reader uses direct gets on a log, which a replica that lags would answer too. So
//     EV has allow_direct off.
//   - One request looks up many subjects ([Bus.LastOf]). Each message of the answer names
//     the sequence before it, so the reader notices a missing message.
//   - On a bus with accounts only the provisioner creates streams and consumers
//     ([Bus.Provide]). A service compares the streams that exist with those that it wants,
//     and asks the provisioner for the missing ones.
//   - Every stored message is sealed with checksums, which readers verify on decode
//     ([events.Verify]). The server silently omits damaged messages, and stops at a block
//     that it cannot unpack. So when nothing arrives, a reader asks whether the server still
//     has messages for it, and ends with ErrDamaged if it has.
//   - The server drops requests that a connection has no right to make, and reports that
//     only to the connection's error handler, so a request would wait for its time-out. The
//     handler ends the refused request instead, and [Bus.Healthy] remembers the refusal.
//
// Goroutines: nats.go owns those that read the connection. [Bus.Follow] runs
// its handler on the caller's goroutine and is fed by one of nats.go's through
// a bounded buffer. [Bus.Work] runs its handler on nats.go's.
package stream
