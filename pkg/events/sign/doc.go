// Package sign proves who made a turn or an outcome, so that permission to publish on the bus is
// not enough to order a write or to open a fence.
//
// A signature is Ed25519 over, each prefixed with its length, the purpose and its version, the
// subject, the place, the time of signing in the form of the header, and the SHA-256 of the
// body. No decision depends on anything else of a message: the headers of traces and the sums
// are not signed. Three headers carry the signature: [HeaderSignature], [HeaderKey] and
// [HeaderAt].
//
// # A message lies where it was meant to lie
//
// A valid signature proves that a trusted process once wrote the message. A copy has the same
// signature. A copy does not count because of its place, which the bus checked when it stored
// the message, and which can still be read:
//
//   - A turn's place is the value of Nats-Expected-Last-Subject-Sequence: the sequence of
//     the turn before it on its subject. The server stores a message with this header only
//     if the last message of the subject has that sequence, and keeps the header. The
//     original lies there, or another turn that was first does; so a copy that bears the
//     header is refused by the server, for good, and a copy without it (a stream's sources,
//     schedules and mirrors remove it) has no place and is refused here. Headers that would
//     have the server look elsewhere, or that only the server's own copying makes, are
//     refused as well.
//   - An outcome's place is its Nats-Msg-Id, which names the turn's stream, sequence and
//     time. The server stores one message of an id within its window, which is longer than
//     [OutcomeWithin].
//
// There remains an attacker that removes messages from a stream so that a place becomes free
// again: the stream is truncated or lost, or the messages of a subject have all expired.
// Therefore a message counts only if it was stored at about the time at which it was signed: a
// turn within the writer's limit on the age of turns, an outcome within [OutcomeWithin], before
// or after, by the clock of the bus. Within that time, an attacker that may truncate streams,
// which no user of the bus may, can repeat a turn; the conditions of its commands and their
// derived names keep it from having an effect twice.
//
// # What counts from when
//
// A key has a time from which on it is valid, and may have one until which. Both are compared
// with the time at which the bus stored a message, which no publisher can choose. Messages
// stored before the first key of a trust file became valid are history: they are accepted as
// they were before there were signatures, so an upgrade needs no manual step. A key without
// Not-Before has always been valid, so that there is no history.
//
// A key may be valid for some controllers only ([Key.Controllers]): where several writers share
// out the controllers, none can publish outcomes of another's turns.
package sign
