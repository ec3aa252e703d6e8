// Package stream is the only door to JetStream: it answers package bus with
// nats.go, and can run the server inside the process ([Serve]).
//
// Streams, by kind and by controller:
//
//	EV_<kind>             every delta, kept by age and size; one fenced publisher
//	STATE_<kind>          mirror of it with one message per subject: the last
//	                      delta of each object, under the log's own sequence
//	TURN_<controller>     turns, kept by age and size
//	OUTCOME_<controller>  outcomes, likewise
//	WAKE                  wakes, set and fired, one of each per key
//
// What holds the design together:
//
//   - A log has one publisher. Each message carries the sequence that must be
//     the last before it, predicted, so that messages are pipelined and yet a
//     second publisher or a lost message is refused at once ([bus.Appender]).
//   - A reader of a stream is an ephemeral consumer that is made anew, from the
//     next sequence, whenever there is any doubt: a reconnect, a missing
//     heartbeat, a hole in the consumer's own count (never in the stream's: a
//     state stream is full of holes).
//   - Who reads most of a stream, and may, has it from a backup ([Options].Backups):
//     the same messages, packed together in large pieces. What goes wrong with that
//     ends where it is, and a consumer gives the rest.
//   - A log is never read through direct gets: its mirror would answer them
//     too, without the messages that it has coalesced away. So EV has
//     allow_direct off, and STATE inherits mirror_direct off from it.
//   - Many subjects are looked up with one question ([Bus.LastOf]); each message of
//     the answer says which one is before it, so that none can be missing unnoticed.
//   - On a bus with accounts only the provisioner makes streams and consumers
//     ([Bus.Provide]); a service compares what is there with what it wants, and asks.
//   - What is stored is sealed with sums, which readers verify on decode
//     ([events.Verify]). The server itself leaves damaged messages out without a
//     word, and at a block that it cannot unpack it stands still: a reader asks,
//     when nothing comes, whether there is something, and ends with ErrDamaged.
//   - A server that was killed removes a stream of which one packed block is
//     damaged. So those blocks are set aside before it starts ([Serve]); and
//     damaged messages are taken out of the others, since one can keep the
//     server from starting at all.
//   - The server drops what a connection may not do and tells only the
//     connection's error handler; requests would wait for their timeout. The
//     handler ends the request that was refused instead, and [Bus.Healthy]
//     remembers.
//
// Goroutines: nats.go owns those that read the connection. [Bus.Follow] runs
// its handler on the caller's goroutine and is fed by one of nats.go's through
// a bounded buffer. [Bus.Work] runs its handler on nats.go's.
package stream
