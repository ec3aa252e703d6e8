// Package sign says who made a turn or an outcome, so that the right to publish on the bus
// neither orders a write nor opens a fence.
//
// A signature is Ed25519 over, each with its length before it, the purpose and its version,
// the subject, the place, the time of signing as it is written in the header, and the
// SHA-256 of the body. Nothing else of a message is decided on: the headers of traces and
// the sums are not signed. Three headers carry it: [HeaderSignature], [HeaderKey] and
// [HeaderAt].
//
// # A message lies where it was meant to lie
//
// A valid signature says that a trusted process once wrote this. A copy has it, too.
// What keeps a copy from counting is its place, which the bus has proven when it stored the
// message, and which is still there to be read:
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
// What is left is an attacker who takes messages out of a stream so that a place becomes free
// again: a stream that is cut or lost, or a subject that is empty because what was there is
// too old. Therefore a message counts only if it was stored at about the time when it was
// signed: of a turn within the writer's bound on the age of turns, of an outcome within
// [OutcomeWithin], before or after, by the clock of the bus. Within that time a turn can be
// repeated by an attacker who may cut streams, which no user of the bus may; the conditions of its
// commands and the names that are derived from it keep it from doing anything twice.
//
// # What counts from when
//
// A key has a time from which on it counts, and may have one until which. Both are held
// against the moment at which the bus stored a message, which no publisher can choose. What
// was stored before the first of all keys in a trust file counts is history and is
// believed, as it was before there were signatures: an upgrade needs no step by hand. A key
// without Not-Before has always counted, and there is no history.
//
// A key may count for some controllers alone ([Key.Controllers]): where several writers share
// them out, none can say what became of another's turns.
package sign
